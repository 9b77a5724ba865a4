"""A table from each benchmark to its files of figures and the pages that show them."""

import ast
import os
import pathlib
import re

from benchmarks.lib import markdown

ROOT = pathlib.Path(__file__).resolve().parents[2]
_RESULTS = ROOT / "benchmarks/results"


def commands() -> dict[str, pathlib.Path]:
    """Returns {`benchmarks.NAME`: file} of each benchmark that users start."""
    found = {}
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        is_program = re.search(r"^if __name__ == ", path.read_text(encoding="utf-8"), re.MULTILINE)
        if is_program and not path.stem.endswith("_worker") and path.parent.name != "lib":
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(part for part in parts if part != "__main__")] = path
    return found


def pages(text: str) -> list[pathlib.Path]:
    """Returns the pages of docs/ that hold the word `text`."""
    word = re.compile(rf"(?<![\w.]){re.escape(text)}(?![\w]|\.[a-z])")
    every = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in every if word.search(page.read_text(encoding="utf-8"))]


def files(path: pathlib.Path) -> list[str]:
    """Returns the names in benchmarks/results/ that a benchmark's study holds."""
    study = path.parent.glob("*.py") if path.name == "__main__.py" else [path]
    text = "".join(file.read_text(encoding="utf-8") for file in study)
    return sorted(file.name for file in _RESULTS.iterdir() if file.name in text)


def table(folder: str) -> str:
    """Returns the table in Markdown, with links from the folder `folder` of docs/."""
    lines = []
    for name, path in commands().items():
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).split("\n")[0]
        links = []
        for page in pages(name):
            place = page.relative_to(ROOT / "docs")
            links.append(f"[{page.stem}]({os.path.relpath(place, folder)})")
        figures = ", ".join(f"`{file}`" for file in files(path))
        lines.append([f"`{name}`", about, figures, ", ".join(links)])
    return markdown.table("command | question | figures | pages", lines)

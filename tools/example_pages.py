"""Pages of the scripts and notebooks in examples/, notebooks with their outputs."""

import ast
import json
import pathlib

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
FOLDER = "examples"


def pages():
    """Returns `{page: Markdown}`, pages named by their path in docs/, notebooks first."""
    notebooks = {path: notebook(path) for path in sorted(EXAMPLES.glob("*.ipynb"))}
    scripts = {path: script(path) for path in sorted(EXAMPLES.glob("*.py"))}
    found = {f"{FOLDER}/{path.stem}.md": text for path, text in (notebooks | scripts).items()}
    return {f"{FOLDER}/index.md": index(found), **found}


def index(found):
    """Returns a page with links to all others."""
    lines = [f"- [{title(text)}]({pathlib.Path(page).name})" for page, text in found.items()]
    about = "Each is a file of the folder `examples` in the checkout, and runs in tests."
    return "\n".join(["# Examples", "", about, "", *lines, ""])


def title(text):
    """The first heading of a page."""
    return text.partition("# ")[2].partition("\n")[0]


def script(path):
    """Returns a Python script as Markdown; its docstring is the text."""
    source = path.read_text(encoding="utf-8")
    heading, _, text = ast.get_docstring(ast.parse(source)).partition("\n")
    code = source.split('"""', 2)[2].strip()
    name = f"`examples/{path.name}`"
    return f"# {heading.rstrip('.')}\n\n{text.strip()}\n\n{name}:\n\n```python\n{code}\n```\n"


def notebook(path):
    """Returns a notebook as Markdown with the outputs that lie in its file."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += filter(None, map(_output, cell["outputs"]))
    return "\n\n".join([*parts, f"The notebook is `examples/{path.name}`.", ""])


def _output(output):
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    image = "".join(output.get("data", {}).get("image/png", "")).replace("\n", "")
    return f"![Output of the cell above.](data:image/png;base64,{image})" if image else ""

"""Hooks of MkDocs: pages of the reference, and formulas."""

import ast
import contextlib
import importlib
import io
import os
import pathlib
import re
import sys

import latex2mathml.converter
from absl import flags
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import terngrad_tf
from benchmarks.lib import index as benchmark_index
from terngrad_tf.bin.command import terngrad
from terngrad_tf.bin.command.commands import ALL
from terngrad_tf.version import __version__
from tools import example_pages, reference

FOLDER = "reference/programs"
PRIVATE = pathlib.Path("terngrad_tf/distribute/private")
# Flags of every program built on absl.
COMMON = {"help", "helpshort", "helpfull", "helpxml", "version", "flagfile", "undefok"}

# Elements that a browser loads without a click.
LOADS = re.compile(
    r"<(?:script|img|iframe|source|link(?![^>]*rel=.?(?:canonical|prev|next|alternate)))\b"
    r"[^>]*\b(?:src|srcset|href)=.?https?:[^>]*>"
)


# Pages of results whose tables hold text.
TEXTS = ("index.md", "accuracy.md", "scale.md", "reliability.md")
# A search finds guides first, then explanations, results and generated pages.
BOOSTS = {
    "results/": 0.7,
    "reference/": 0.3,
    "examples/": 0.7,
    "explanation/": 1,
    "from_": 1,
    "": 2,
}


def on_config(config):
    """Shows the version below each page."""
    config.copyright = f"terngrad_tf {__version__}"
    return config


def on_files(files, config):
    """Adds the pages of examples, public classes, and commands of `terngrad`."""
    for page, text in (reference.pages() | example_pages.pages()).items():
        files.append(File.generated(config, page, content=text))
    for name in sorted(ALL):
        module = importlib.import_module(ALL[name].module)
        define = getattr(module, "define_flags", None)
        body = absl_flags(define) if define else help_text(name)
        about = re.split(r"\n\s*Example:", module.__doc__)[0].strip()
        text = f"# terngrad {name}\n\n{about}\n\n    terngrad {name} --help\n\n{body}"
        page = f"{FOLDER}/{name.replace(' ', '_')}.md"
        files.append(File.generated(config, page, content=text))
    return files


def is_result(page):
    """Returns True if a page holds wide tables of figures."""
    folder, _, name = page.file.src_uri.rpartition("/")
    return folder == "results" and name not in TEXTS


def on_page_markdown(markdown, page, **_):
    """Inserts text generated from the code at a page's marks; gives wide tables more room."""
    path = page.file.src_uri
    if is_result(page):
        page.meta["hide"] = ["toc"]
    boost = next(boost for folder, boost in BOOSTS.items() if path.startswith(folder))
    page.meta.setdefault("search", {"boost": boost})
    names = ", ".join(f"`{name}`" for name in terngrad_tf.__all__ if not name.startswith("_"))
    marks = {
        "table": lambda: reference.table(path),
        "patches": patches_table,
        "names": lambda: names,
        "benchmarks": lambda: benchmark_index.table(os.path.dirname(path)),
    }
    for mark, text in marks.items():
        if f"<!-- {mark} -->" in markdown:
            markdown = markdown.replace(f"<!-- {mark} -->", text())
    return markdown


def on_page_content(html, page, **_):
    """Marks the pages of results, whose tables keep each number on one line."""
    if is_result(page):
        html = f'<div class="results">{html}</div>'
    # No published repository to link to: a page names its file.
    source = page.file.abs_src_path and f"docs/{page.file.src_uri}"
    return html + (f'<p class="source">Source: <code>{source}</code></p>' if source else "")


def on_post_build(config):
    """Raises PluginError if a page loads a file from another site."""
    for page in pathlib.Path(config["site_dir"]).rglob("*.html"):
        found = LOADS.findall(page.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{page} loads {found[0]}")


def patches_table():
    """Returns a Markdown table of the manifest of patches, read from the sources."""
    lines = ["| function | of | what its replacement does |", "|---|---|---|"]
    for path in sorted(PRIVATE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for call in getattr(node, "decorator_list", []):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "patch":
                    owner, *names = map(ast.unparse, call.args)
                    functions = ", ".join(f"`{name[1:-1]}`" for name in names)
                    about = " ".join(ast.get_docstring(node).split("\n\n")[0].split())
                    lines.append(f"| {functions} | `{owner.lstrip('_')}` | {about} |")
    return "\n".join(lines)


def absl_flags(define):
    """Returns a Markdown list of the flags that the function `define` defines."""
    values = flags.FlagValues()
    define(values)
    lines = []
    for name in sorted(set(values) - COMMON):
        flag = values[name]
        if name != flag.name:  # a short name
            continue
        text = " ".join(flag.help.replace("<", "&lt;").split())
        default = f"\n    Default: `{flag.default}`." if flag.default not in (None, "") else ""
        lines.append(f"`--{name}`{{ #{name} }}\n:   {text}{default}\n")
    return "\n".join(lines)


def help_text(name):
    """What a command built on argparse prints for `--help`, as a Markdown code block."""
    printed = io.StringIO()
    arguments, columns = sys.argv, os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "88"
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            terngrad.main(["terngrad", *name.split(), "--help"])
    finally:
        sys.argv = arguments
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)
    return f"```text\n{printed.getvalue()}```\n"


def math(source, language, css_class, options, md, **_):
    """Formats a ```` ```math ```` block as MathML, which browsers draw without a script."""
    lines = [line for line in source.splitlines() if line.strip()]
    formulas = [latex2mathml.converter.convert(line, display="block") for line in lines]
    return f'<div class="{css_class}">{"".join(formulas)}</div>'

"""Pages of the reference: one for each public class, and one for the functions of a package."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = "reference"
# Most used packages first.
FIRST_PACKAGES = ("distribute", "checkpoints", "subspace", "models", "slim_data")
# Most used classes first.
FIRST = ("TernGradStrategy", "Quantization", "ClusterOptions", "DiLoCo", "TernaryAllReduce")
FUNCTIONS = "functions"
_INITS = "terngrad_tf/*/__init__.py"
# Packages that only other packages use.
_HIDDEN = ("launcher",)
# A package's own page.
OVERVIEW = """\
# {0}

::: {0}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      members: false

<!-- table -->
"""


@functools.cache
def packages():
    """Returns `{page: package}` of all packages with public names."""
    found = {path.parent.name: f"terngrad_tf.{path.parent.name}" for path in ROOT.glob(_INITS)}
    found = {p: package for p, package in found.items() if p not in _HIDDEN and names(package)}
    found["slim_data"] = "slim_data"
    return dict(sorted(found.items(), key=lambda item: _order(item[0], FIRST_PACKAGES)))


@functools.cache
def names(package):
    """Returns `{name: (dotted path, AST node)}` of a package's public names."""
    tree = _parsed(package)
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_ORIGINS":
            found |= {n: f"{package}.{m}" for n, m in ast.literal_eval(node.value).items()}
    # Lazily loaded names are imported for editors, too.
    if not found:
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                found |= {alias.name: node.module for alias in node.names}
    defined = {name: _definition(module, name) for name, module in found.items()}
    return dict(sorted(defined.items(), key=lambda item: _order(item[0])))


def pages():
    """Returns `{page: Markdown}`, pages named by their path in docs/."""
    result = {}
    for page, package in packages().items():
        public = names(package)
        if not (ROOT / f"docs/{FOLDER}/{page}.md").exists():
            result[f"{FOLDER}/{page}/index.md"] = OVERVIEW.format(package)
        classes, functions = split(public)
        for name in classes:
            result[f"{FOLDER}/{page}/{name}.md"] = _page(name, [public[name][0]])
        if functions:
            title = f"Functions of {package}"
            paths = [public[name][0] for name in functions]
            result[f"{FOLDER}/{page}/{FUNCTIONS}.md"] = _page(title, paths, f"# {title}\n\n")
    return result


def links():
    """Returns `{name: dotted path}` of all public names, for links in docstrings."""
    return {n: path for package in packages().values() for n, (path, _) in names(package).items()}


def table(source):
    """Returns a Markdown table of a package's names; `source` is its own page's path in docs/."""
    *_, folder, name = source.removesuffix(".md").split("/")
    page, prefix = (folder, "") if name == "index" else (name, f"{name}/")
    public = names(packages()[page])
    classes, functions = split(public)
    lines = ["| name | purpose |", "|---|---|"]
    for name in (*classes, *functions):
        path, node = public[name]
        target = f"{FUNCTIONS}.md#{path}" if name in functions else f"{name}.md"
        text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else ""
        about = " ".join((text or "").split("\n\n")[0].split()).replace("|", "\\|")
        lines.append(f"| [`{name}`]({prefix}{target}) | {about} |")
    return "\n".join(lines)


def split(public):
    """Returns the names of classes, and all other names."""
    classes = [name for name, (_, node) in public.items() if isinstance(node, ast.ClassDef)]
    return classes, [name for name in public if name not in classes]


def _order(name, first=FIRST):
    return (first.index(name) if name in first else len(first), name.lower())


def _page(title, paths, text=""):
    blocks = "\n\n".join(f"::: {path}{_options(path)}" for path in paths)
    files = sorted({f"`{path.rpartition('.')[0].replace('.', '/')}.py`" for path in paths})
    source = f"Source: {', '.join(files)}"
    return f"---\ntitle: {title}\n---\n\n{text}{blocks}\n\n{source}\n"


def _options(path):
    # The programs take its fields, too.
    return "\n    options:\n      inherited_members: true" if path.endswith(".Quantization") else ""


def _parsed(module):
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _definition(module, name):
    """Returns the path of the module that defines a name, with the name, and its AST node."""
    body = _parsed(module).body
    for node in body:
        if getattr(node, "name", None) == name:
            return f"{module}.{name}", node
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return f"{module}.{name}", node
    for node in body:
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return _definition(node.module, name)
    raise ValueError(f"{module} does not define {name}")

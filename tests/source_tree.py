"""Reads the project's own sources: which modules there are and what each imports."""

import ast
import os
import pathlib

# Not resolved: under Bazel the files are links, and only the declared ones count.
ROOT = pathlib.Path(os.path.abspath(__file__)).parent.parent
PACKAGES = ("terngrad_tf", "slim_data")


def module_name(path):
    """Returns the dotted name of the module in `path`, a path relative to the checkout."""
    parts = pathlib.PurePath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules():
    """Returns {dotted name: path relative to the checkout} of every module of the packages."""
    paths = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
    relative = [p.relative_to(ROOT) for p in paths if "__pycache__" not in p.parts]
    return {module_name(p): p for p in relative}


def imported_modules(source, module="", is_package=False, known=()):
    """Returns the set of dotted module names that `source` imports, wherever in it.

    `from a import b` counts as `a.b` where that is in `known` or nothing can be said of `a`
    (a third-party package), so that `from absl import flags` is seen as `absl.flags`.

    Args:
      source: text of the module.
      module: its dotted name; relative imports are resolved against it.
      is_package: whether the source is an `__init__.py`.
      known: dotted names of the project's modules.
    """
    found = set()
    tree = ast.parse(source)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if is_package and "__getattr__" in functions:
        # A package that loads names at their first use keeps their origins in tables of strings.
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        found.update(name for text in texts for name in (text, f"{module}.{text}") if name in known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                anchor = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join(anchor + ([base] if base else []))
            ours = base.split(".")[0] in PACKAGES
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found.add(name if not ours or name in known else base)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            # importlib.import_module("a.b"), and classes that put off an import.
            function = ast.unparse(node.func).rpartition(".")[2]
            if function in ("import_module", "import_extra") or function.endswith("LazyModule"):
                found.add(node.args[0].value)
    return found


def attribute_chains(source):
    """Returns every longest dotted chain in `source` that starts at a name, e.g. `tf.io.gfile`."""
    tree = ast.parse(source)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            parts = []
            while isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            if isinstance(node, ast.Name):
                found.add(".".join([node.id, *reversed(parts)]))
    return found


def foreign_private_attributes(source):
    """Returns names like `_x` that `source` reads from or sets on objects other than its own.

    Its own are `self`, `cls`, `super()` and the classes it defines.
    """
    tree = ast.parse(source)
    own = {"self", "cls"} | {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    # Public in spite of the underscore: parts of a named tuple, and `os._exit`.
    public = {"_asdict", "_fields", "_make", "_replace", "_exit"}
    found = set()
    for node in ast.walk(tree):
        name, base = None, None
        if isinstance(node, ast.Attribute):
            name, base = node.attr, node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr", "setattr", "delattr")
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
        ):
            name, base = node.args[1].value, node.args[0]
        if not isinstance(name, str) or not name.startswith("_") or name.startswith("__"):
            continue
        if isinstance(base, ast.Name) and base.id in own:
            continue
        if isinstance(base, ast.Call) and ast.unparse(base.func) == "super":
            continue
        if name not in public:
            found.add(name)
    return found

"""Reads the project's sources: its modules and their imports."""

import ast
import dataclasses
import functools
import os
import pathlib

# Not resolved: under Bazel the files are links, and only declared files count.
ROOT = pathlib.Path(os.path.abspath(__file__)).parent.parent
PACKAGES = ("terngrad_tf", "slim_data")


@functools.cache
def module_name(path):
    """Returns the dotted name of the module in `path`, relative to the checkout."""
    parts = pathlib.PurePath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules():
    """Returns {dotted name: path relative to the checkout} of all modules of the packages."""
    paths = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
    relative = [p.relative_to(ROOT) for p in paths if "__pycache__" not in p.parts]
    return {module_name(p): p for p in relative}


def tests_by_folder():
    """Returns {folder relative to tests/: names of its modules, including helpers}."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name != "__init__.py" and "__pycache__" not in path.parts:
            folder = path.parent.relative_to(ROOT / "tests").as_posix()
            found.setdefault(folder, []).append(path.stem)
    return found


@functools.lru_cache(maxsize=8)
def _parsed(source):
    """Returns the tree of a source, which callers must not change."""
    return ast.parse(source)


def imported_modules(source, module="", is_package=False, known=()):
    """Returns the set of dotted module names that `source` imports anywhere.

    `from a import b` counts as `a.b` if `known` contains it, or if `a` is a third-party package. So
    `from absl import flags` counts as `absl.flags`.

    Args:
      source: text of the module.
      module: its dotted name; relative imports are resolved against it.
      is_package: whether the source is an `__init__.py`.
      known: dotted names of the project's modules.
    """
    found = set()
    tree = _parsed(source)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if is_package and "__getattr__" in functions:
        # A package with lazily loaded names keeps their origins in tables of strings.
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        found.update(name for text in texts for name in (text, f"{module}.{text}") if name in known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _imported_from(node, module, is_package)
            ours = base.split(".")[0] in PACKAGES
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found.add(name if not ours or name in known else base)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            # importlib.import_module("a.b"), and classes that delay an import.
            function = ast.unparse(node.func).rpartition(".")[2]
            if function in ("import_module", "import_extra") or function.endswith("LazyModule"):
                found.add(node.args[0].value)
    return found


def attribute_chains(source):
    """Returns each longest dotted chain in `source` that starts at a name, e.g. `tf.io.gfile`."""
    tree = _parsed(source)
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


@dataclasses.dataclass(frozen=True)
class _Module:
    """The classes of a module and the origins of the names that it imports."""

    classes: dict[str, ast.ClassDef]
    origins: dict[str, str]


def foreign_private_attributes(source, module="", is_package=False):
    """Returns names like `_x` that `source` reads or sets on foreign objects.

    `self._x`, `cls._x` and `A._x`, for a class `A` of the source, are not foreign if the class or a
    base class in the packages defines `_x`; nor is `super()._x` if a base class does. A class
    defines
    the names that it assigns, annotates or declares as a function or class, also through `self`.

    Args:
      source: text of the module.
      module: its dotted name; relative imports are resolved against it.
      is_package: whether the source is an `__init__.py`.
    """
    tree = _parsed(source)
    here = _read(tree, module, is_package)
    # Public despite the underscore: methods of named tuples, and `os._exit`.
    public = {"_asdict", "_fields", "_make", "_replace", "_exit"}
    found = set()

    def visit(node, owner):
        name, base = _attribute(node)
        is_private = isinstance(name, str) and name.startswith("_") and not name.startswith("__")
        if is_private and name not in public and name not in _own_names(base, owner, here):
            found.add(name)
        owner = node if isinstance(node, ast.ClassDef) else owner
        for child in ast.iter_child_nodes(node):
            visit(child, owner)

    visit(tree, None)
    return found


def _attribute(node):
    """Returns (name, object) of `object.name` or `getattr(object, "name")`, else Nones."""
    if isinstance(node, ast.Attribute):
        return node.attr, node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr", "setattr", "delattr")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    ):
        return node.args[1].value, node.args[0]
    return None, None


def _own_names(base, owner, module):
    """Returns the private names that code in class `owner` may use on the expression `base`."""
    if isinstance(base, ast.Call) and ast.unparse(base.func) == "super" and owner is not None:
        return _inherited(owner, module)
    if isinstance(base, ast.Name):
        used = owner if base.id in ("self", "cls") else module.classes.get(base.id)
        if used is not None:
            return _defined(used) | _inherited(used, module)
    return set()


@functools.cache
def _defined(class_node):
    """Returns the attributes that a class itself defines."""
    found = set()
    for statement in class_node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(statement.name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            found.update(
                n.id
                for n in ast.walk(statement)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            )
    pending = list(class_node.body)
    while pending:
        node = pending.pop()
        name, base = _attribute(node)
        sets = isinstance(getattr(node, "ctx", None), ast.Store) or (
            isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr"
        )
        if name and sets and isinstance(base, ast.Name) and base.id in ("self", "cls"):
            found.add(name)
        if isinstance(node, ast.AugAssign):
            # An augmented assignment needs an existing value.
            pending.append(node.value)
        elif not isinstance(node, ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))
    return found


def _inherited(class_node, module):
    """Returns the names that the base classes in the packages define."""
    found = set()
    for base in class_node.bases:
        generic = base.value if isinstance(base, ast.Subscript) else base
        known, its_module = _class_of(ast.unparse(generic), module)
        if known is not None:
            found |= _defined(known) | _inherited(known, its_module)
    return found


def _class_of(name, module):
    """Returns (class, module) for a dotted name in a module, Nones outside of the packages."""
    head, dot, rest = name.partition(".")
    if name in module.classes:
        return module.classes[name], module
    if head in module.origins:
        owner, _, name = (module.origins[head] + dot + rest).rpartition(".")
        if owner in modules():
            return _class_of(name, _module(owner))
    return None, None


@functools.cache
def _module(name):
    path = modules()[name]
    text = (ROOT / path).read_text(encoding="utf-8")
    return _read(ast.parse(text), name, path.name == "__init__.py")


def _read(tree, module, is_package):
    classes, origins = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            classes[node.name] = node
        elif isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                origins[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom):
            base = _imported_from(node, module, is_package)
            origins.update((a.asname or a.name, f"{base}.{a.name}") for a in node.names)
    return _Module(classes, origins)


def _imported_from(node, module, is_package):
    """Returns the dotted name of the module in `from module import name`."""
    base = node.module or ""
    if not node.level:
        return base
    parts = module.split(".")
    anchor = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join(anchor + ([base] if base else []))

"""Reads BUILD files, which here use the part of Starlark that is also Python."""

import types

from tests import source_tree

FOLDERS = (*source_tree.PACKAGES, "tests", "benchmarks")
RULES = ("py_library", "py_binary", "py_test", "sh_binary", "filegroup", "alias")


class Target:
    """One rule of a BUILD file.

    Attributes:
      rule: name of the rule, such as "py_library".
      label: absolute label, such as "//terngrad_tf/ternary:ternary".
      srcs: paths of the sources, relative to the checkout, and labels in other packages.
      deps: absolute labels of dependencies.
      data: labels of files that it reads.
      visibility: packages that may depend on it, besides its own package.
    """

    def __init__(self, rule, folder, name, srcs=(), deps=(), data=(), visibility=(), **_):
        """Resolves names relative to `folder`, the path of the BUILD file's folder."""
        self.rule = rule
        self.label = f"//{folder}:{name}"
        self.srcs = tuple(src if ":" in src else f"{folder}/{src}" for src in srcs)
        self.deps = tuple(absolute_label(dep, folder) for dep in deps)
        self.data = tuple(data)
        self.visibility = tuple(visibility)

    def is_visible_to(self, label):
        """Returns True if the target with this label may depend on this one."""
        user = label.partition(":")[0]
        if user == self.label.partition(":")[0] or "//visibility:public" in self.visibility:
            return True
        packages = [v.partition(":") for v in self.visibility]
        return any(
            user == package or (scope == "__subpackages__" and user.startswith(package + "/"))
            for package, _, scope in packages
        )


def absolute_label(label, folder):
    """Returns the absolute form of `label`: `:x` and `//a/b` become `//folder:x` and `//a/b:b`."""
    if label.startswith(":"):
        return f"//{folder}{label}"
    if ":" not in label and label.startswith("//"):
        return f"{label}:{label.rpartition('/')[2]}"
    return label


def glob(path, include, exclude=(), allow_empty=False):
    """Returns the names below the folder `path`, except in folders with BUILD files."""

    def chosen(patterns):
        # Python's "**" matches folders only.
        return {p for text in patterns for p in path.glob(text + "/*" * text.endswith("**"))}

    files = {p for p in chosen(include) - chosen(exclude) if p.is_file()}
    inside = {p.parent for p in path.glob("*/**/BUILD")}
    names = [str(p.relative_to(path)) for p in files if not inside & set(p.parents)]
    if not names and not allow_empty:
        raise ValueError(f"`glob` must find files in {path}. Received: include={include}")
    return sorted(names)


def read_build_file(folder, root=source_tree.ROOT):
    """Returns the targets in the BUILD file of `folder`, in the checkout `root`."""
    targets = []

    def recorder(rule):
        return lambda **attributes: targets.append(Target(rule, folder, **attributes))

    def run(path):
        def load(label, *loaded):
            if label.startswith("//"):
                macros = run(root / label.strip("/").replace(":", "/"))
                names.update({name: macros[name] for name in loaded})

        names = {**rules, "load": load}
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)  # noqa: S102 - our own
        return names

    rules = {rule: recorder(rule) for rule in RULES}
    rules["glob"] = lambda *patterns, **options: glob(root / folder, *patterns, **options)
    rules["native"] = types.SimpleNamespace(package_name=lambda: folder, **rules)
    rules["exports_files"] = lambda *_, **__: None
    run(root / folder / "BUILD")
    return targets


def folders():
    """Returns the folders with Python files, relative to the checkout."""
    return sorted(
        {
            str(path.parent.relative_to(source_tree.ROOT))
            for top in FOLDERS
            for path in (source_tree.ROOT / top).rglob("*.py")
            if "__pycache__" not in path.parts
        }
    )


def all_targets():
    """Returns the targets of every BUILD file in `folders()`."""
    with_file = [f for f in folders() if (source_tree.ROOT / f / "BUILD").exists()]
    return [target for folder in with_file for target in read_build_file(folder)]

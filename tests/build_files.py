"""Reads the BUILD files: they are Starlark, of which these use the part that is also Python."""

import fnmatch
import os

from tests import source_tree

FOLDERS = (*source_tree.PACKAGES, "tests", "benchmarks")
RULES = (
    *("py_library", "py_binary", "py_test", "sh_binary"),
    *("filegroup", "alias", "test_suite"),
)


class Target:
    """One rule of a BUILD file.

    Attributes:
      rule: name of the rule, such as "py_library".
      label: absolute label, such as "//terngrad_tf/ternary:ternary".
      srcs: paths of the sources, relative to the checkout.
      deps: absolute labels of what it depends on.
    """

    def __init__(self, rule, folder, name, srcs=(), deps=(), **_):
        """Resolves names that are relative to `folder`, the path of the BUILD file's folder."""
        self.rule = rule
        self.label = f"//{folder}:{name}"
        self.srcs = tuple(os.path.join(folder, src) for src in srcs)
        self.deps = tuple(absolute_label(dep, folder) for dep in deps)


def absolute_label(label, folder):
    """Returns `label` spelled in full: `:x` and `//a/b` become `//folder:x` and `//a/b:b`."""
    if label.startswith(":"):
        return f"//{folder}{label}"
    if ":" not in label and label.startswith("//"):
        return f"{label}:{label.rpartition('/')[2]}"
    return label


def read_build_file(text, folder, files):
    """Returns the targets that a BUILD file declares.

    Args:
      text: its content.
      folder: its folder, relative to the checkout.
      files: names of the files beside it and paths of those below, which `glob` chooses from.
    """
    targets = []

    def recorder(rule):
        return lambda **attributes: targets.append(Target(rule, folder, **attributes))

    def glob(include, exclude=()):
        def chosen(name, patterns):
            return any(
                name.count("/") == pattern.count("/") and fnmatch.fnmatch(name, pattern)
                for pattern in patterns
            )

        return [n for n in sorted(files) if chosen(n, include) and not chosen(n, exclude)]

    def ignored(*_, **__):
        return None

    names = {rule: recorder(rule) for rule in RULES}
    names.update(glob=glob, load=ignored, package=ignored, exports_files=ignored)
    exec(compile(text, f"{folder}/BUILD", "exec"), names)  # noqa: S102 - our own file
    return targets


def folders():
    """Returns the folders, relative to the checkout, that hold Python files."""
    found = set()
    for top in FOLDERS:
        for path in (source_tree.ROOT / top).rglob("*.py"):
            if "__pycache__" not in path.parts:
                found.add(str(path.parent.relative_to(source_tree.ROOT)))
    return sorted(found)


def all_targets():
    """Returns the targets of every BUILD file in `folders()`; a missing file declares none."""
    targets = []
    for folder in folders():
        path = source_tree.ROOT / folder
        if (path / "BUILD").exists():
            files = [str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()]
            text = (path / "BUILD").read_text(encoding="utf-8")
            targets += read_build_file(text, folder, files)
    return targets

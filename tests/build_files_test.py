"""BUILD files contain all sources, and dependencies match imports."""

import ast
import collections
import pathlib
import re
import sys
import tempfile
import unittest

import pytest

from tests import build_files, source_tree

# Import name -> Bazel name, if they differ.
PACKAGE_NAMES = {
    "absl": "absl_py",
    "sklearn": "scikit_learn",
    "google": "protobuf",
    "PIL": "pillow",
    "yaml": "pyyaml",
}

PRODUCT = tuple(f"//{package}" for package in source_tree.PACKAGES)
DATASETS = ("mnist", "cifar10", "imagenet", "flowers")

# Packages of extras in pyproject.toml, or of other environments; the code reports missing ones.
OPTIONAL = {"hivemind", "keras_hub", "tensorflow_datasets", "torch", "torchft", "xdist"}


def python_files():
    """Returns the paths of all Python files, relative to the checkout."""
    found = []
    for folder in build_files.folders():
        found += [f"{folder}/{p.name}" for p in (source_tree.ROOT / folder).glob("*.py")]
    return found


def owners(targets):
    """Returns {path: label to depend on}, preferring libraries to programs."""
    owner_of = {}
    for rule in ("py_test", "py_binary", "py_library"):
        owner_of.update({src: t.label for t in targets if t.rule == rule for src in t.srcs})
    return owner_of


def needed_dependencies(path, source, owner_of):
    """Returns the labels that the file `path` needs for the imports in `source`."""
    path_of = {source_tree.module_name(p): p for p in owner_of}
    names = source_tree.imported_modules(
        source, source_tree.module_name(path), path.endswith("/__init__.py"), path_of
    )
    needed = set()
    for name in names:
        top = name.split(".")[0]
        if top in build_files.FOLDERS:
            while name not in path_of and "." in name:
                name = name.rpartition(".")[0]
            needed.add(owner_of.get(path_of.get(name), f"no target holds {name}"))
        elif top not in sys.stdlib_module_names and top not in OPTIONAL:
            needed.add(f"@pypi//{PACKAGE_NAMES.get(top, top)}")
    return needed - {owner_of.get(path)}


class BuildFilesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.targets = build_files.all_targets()
        self.owner_of = owners(self.targets)

    def test_every_source_exists(self):
        sources = {src for t in self.targets for src in t.srcs if not src.startswith("//")}
        missing = [src for src in sources if not (source_tree.ROOT / src).exists()]
        self.assertEqual(sorted(missing), [])

    def test_names_of_targets_are_unique(self):
        # A target named `sources` clashes with the default target of a folder of that name.
        counts = collections.Counter(t.label for t in self.targets)
        self.assertEqual([label for label, count in counts.items() if count > 1], [])

    def test_every_python_file_is_in_a_target(self):
        self.assertEqual([p for p in sorted(python_files()) if p not in self.owner_of], [])

    def test_every_test_file_is_a_test_target(self):
        tests = {src for t in self.targets if t.rule == "py_test" for src in t.srcs}
        files = {p for p in python_files() if p.endswith("_test.py")}
        self.assertEqual(files, tests)

    def test_every_test_file_runs_under_bazel(self):
        # A py_test runs the file itself, which must call pytest to test anything.
        for path in python_files():
            if path.endswith("_test.py"):
                text = (source_tree.ROOT / path).read_text(encoding="utf-8")
                last = ast.parse(text).body[-1]
                with self.subTest(path=path):
                    self.assertIn("pytest.main([__file__", ast.unparse(last))

    def test_tests_that_read_the_sources_see_every_folder(self):
        (seen,) = (t.srcs for t in self.targets if t.label == "//tests:checkout")
        folders = {t.label.split(":")[0] for t in self.targets} - {"//tests"}
        self.assertEqual([f for f in sorted(folders) if f"{f}:sources" not in seen], [])

    def test_targets_depend_on_what_they_import(self):
        found = []
        for target in self.targets:
            needed = set()
            for src in target.srcs:
                if target.rule == "py_binary" and self.owner_of[src] != target.label:
                    needed.add(self.owner_of[src])
                elif target.rule.startswith("py_") and (source_tree.ROOT / src).exists():
                    text = (source_tree.ROOT / src).read_text(encoding="utf-8")
                    needed |= needed_dependencies(src, text, self.owner_of)
            needed.discard(target.label)
            found += [f"{target.label} lacks {n}" for n in sorted(needed - set(target.deps))]
            # Test helpers may have unused dependencies.
            if target.rule == "py_library" and target.label.startswith(PRODUCT):
                unused = set(target.deps) - needed
                found += [f"{target.label} needs no {n}" for n in sorted(unused)]
        self.assertEqual(found, [])

    def test_targets_see_what_they_depend_on(self):
        target_of = {t.label: t for t in self.targets}
        found = [
            f"{target.label} does not see {dep}"
            for target in self.targets
            for dep in target.deps
            if dep in target_of and not target_of[dep].is_visible_to(target.label)
        ]
        self.assertEqual(found, [])

    def test_workspace_offers_the_packages_used(self):
        used = {d for t in self.targets for d in t.deps if d.startswith("@pypi//")}
        workspace = (source_tree.ROOT / "WORKSPACE").read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(workspace)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "offline_stubs":
                offered = {f"@pypi//{n}" for n in ast.literal_eval(node.keywords[0].value)}
        self.assertEqual(used, offered)

    def test_lock_file_holds_the_packages_used(self):
        used = {d for t in self.targets for d in t.deps if d.startswith("@pypi//")}
        lock = (source_tree.ROOT / "requirements_lock.txt").read_text(encoding="utf-8")
        names = re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)
        locked = {"@pypi//" + re.sub(r"[-_.]+", "_", name.lower()) for name in names}
        self.assertEqual(used - locked, set())

    def test_versions_agree(self):
        module = (source_tree.ROOT / "MODULE.bazel").read_text(encoding="utf-8")
        text = (source_tree.ROOT / "terngrad_tf/version.py").read_text(encoding="utf-8")
        stated = re.search(r'__version__ = "(.+)"', text).group(1)
        self.assertIn(f'    version = "{stated}",\n)', module)
        data = (source_tree.ROOT / "slim_data/common/version.py").read_text(encoding="utf-8")
        self.assertIn(f'__version__ = "{stated}"', data)
        citation = (source_tree.ROOT / "CITATION.cff").read_text(encoding="utf-8")
        self.assertIn(f"\nversion: {stated}\n", citation)

    def test_programs_have_the_names_of_terngrads_readme(self):
        targets = build_files.read_build_file("inception")
        built = {t.label for t in targets if t.rule.endswith("_binary")}
        pairs = {f"{name}_{kind}" for name in DATASETS for kind in ("train", "eval")}
        several = {f"{name}_distributed_train" for name in ("mnist", "cifar10", "imagenet")}
        scripts = {f"download_and_preprocess_{name}" for name in ("flowers", "imagenet")}
        converters = {"build_image_data", "build_imagenet_data"}
        wanted = pairs | several | scripts | converters
        self.assertEqual(built, {f"//inception:{name}" for name in wanted})


class ReadBuildFileTest(unittest.TestCase):
    def test_globs_labels_and_macros_are_understood(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (
                ("a/b/BUILD", 'load("//t:m.bzl", "tests")\ntests([":y"])'),
                ("a/b/m.py", ""),
                ("a/b/m_test.py", ""),
                ("a/b/below/n.py", ""),
                ("a/b/apart/BUILD", ""),
                ("a/b/apart/o.py", ""),
                (
                    "t/m.bzl",
                    'load("@rules_python//python:defs.bzl", "py_library", "py_test")\n'
                    "def tests(deps):\n"
                    '    files = native.glob(["**/*.py"], exclude = ["*_test.py"])\n'
                    '    py_library(name = "b", srcs = files, deps = ["//x"] + deps)\n'
                    '    for f in native.glob(["*_test.py"]):\n'
                    '        py_test(name = f[:-3], srcs = [f], deps = ["@pypi//pytest"])\n',
                ),
            ):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            library, test = build_files.read_build_file("a/b", root)
        self.assertEqual((library.label, library.srcs), ("//a/b:b", ("a/b/below/n.py", "a/b/m.py")))
        self.assertEqual(library.deps, ("//x:x", "//a/b:y"))
        self.assertEqual((test.label, test.srcs), ("//a/b:m_test", ("a/b/m_test.py",)))
        self.assertEqual(test.deps, ("@pypi//pytest",))

    def test_imports_become_labels(self):
        owner_of = {
            "terngrad_tf/a/__init__.py": "//terngrad_tf/a:a",
            "terngrad_tf/a/m.py": "//terngrad_tf/a:a",
            "terngrad_tf/b/n.py": "//terngrad_tf/b:b",
        }
        for source, needed in (
            ("import os, sys", set()),
            ("from absl import flags", {"@pypi//absl_py"}),
            ("from terngrad_tf.a import f", {"//terngrad_tf/a:a"}),
            ("def g():\n    from terngrad_tf.a import m", {"//terngrad_tf/a:a"}),
            ("from terngrad_tf.b import n", set()),
            ("import terngrad_tf.c", {"no target holds terngrad_tf"}),
        ):
            with self.subTest(source=source):
                found = needed_dependencies("terngrad_tf/b/n.py", source, owner_of)
                self.assertEqual(found, needed)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

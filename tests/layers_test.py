"""The import rules of CONTRIBUTING.md, checked on every source file."""

import ast
import importlib
import pathlib
import re
import subprocess
import sys
import unittest

import pytest

from terngrad_tf import models
from terngrad_tf.bin.command.commands import ALL
from tests import source_tree

# Lower layers first: a module imports its own layer and lower ones.
LAYERS = (
    "common",
    "launcher",
    "ternary",
    "distribute",
    "checkpoints",
    "subspace",
    "models",
    "training",
    "phase_2",
    "parameter_server",
    "reports",
    "bin",
)
# Layers within distribute: packages and single modules. Its `__init__.py` re-exports all.
ROOMS = (
    "steps",
    "private",
    "batch_norms",
    "communication",
    "cluster",
    "consistency",
    "exchange",
    "telemetry",
    "wire_selection",
    "all_reduce",
    "strategy",
    "local_sgd",
    "elastic",
)
# Layers within training.
TRAINING_ROOMS = (
    "errors",
    "log",
    "configs",
    "storage",
    "logs",
    "optimization",
    "input",
    "network",
    "evaluation",
    "runs",
)
# Layers within private; entries of the manifest of patches are lower.
PRIVATE_ROOMS = (
    *("patches", "keras_names", "holders"),
    *("collectives", "data", "replicas", "strategies", "keras"),
)
# Layers within subspace.
SUBSPACE_ROOMS = ("weights", "components", "optimizers")
# Maximum number of modules in a folder, of tests too. Programs and networks do not count, since
# users type their names.
MAX_MODULES = 14
# Folders of tests/ that mirror no package.
OTHER_TESTS = {"benchmarks", "clients", "docs", "fuzz", "harness", "scripts", "startup"}
# Optional features. To delete one, change only its entry points. Programs among them go with the
# feature; other modules import it only on request.
FEATURES = {
    "terngrad_tf.phase_2": {
        "terngrad_tf.bin.average_snapshots",
        "terngrad_tf.bin.quickstart",
        "terngrad_tf.bin.subspace_train",
    },
    "terngrad_tf.parameter_server": {"terngrad_tf.bin.common.experiments"},
    "terngrad_tf.reports": {"terngrad_tf.bin.report", "terngrad_tf.bin.common.run_reports"},
}
# Layers within slim_data; its programs, outside these packages, may import them all.
DATA_LAYERS = ("common", "files", "tfrecord", "preprocessing", "datasets", "input", "cli")
FUSED_PACKAGE = "terngrad_tf.ternary.fused"
DISTRIBUTE_PACKAGE = "terngrad_tf.distribute"
PRIVATE_PACKAGE = "terngrad_tf.distribute.private"
TRAINING_PACKAGE = "terngrad_tf.training"
WITH_ROOMS = {
    DISTRIBUTE_PACKAGE: ROOMS,
    PRIVATE_PACKAGE: PRIVATE_ROOMS,
    TRAINING_PACKAGE: TRAINING_ROOMS,
    "terngrad_tf.subspace": SUBSPACE_ROOMS,
}
PRIVATE_MODULES = (
    "tensorflow.python",
    "tensorflow.core",
    "tensorflow.__internal__",
    "keras.src",
    "keras._tf_keras",
)
NOT_IN_TERNARY = ("keras", "absl", "tensorflow.keras", "tensorflow.distribute")
# All that `pip install terngrad_tf` installs, besides dependencies of these.
CORE_PACKAGES = {"tensorflow", "keras", "numpy", "safetensors"}
NOT_IN_SLIM_DATA = ("keras", "tensorflow.keras", "terngrad_tf")


def commands():
    """Returns the module of the console command, and the modules of its subcommands."""
    text = (source_tree.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = set(re.findall(r'^\w+ = "([\w.]+):run"$', text, re.MULTILINE))
    return names | {command.module for command in ALL.values()}


def within(name, package):
    """Returns True if the dotted `name` is `package` or lies inside it."""
    return name == package or name.startswith(package + ".")


def layer_of(name):
    """Returns (top package, rank of the layer) of a dotted module name, or None."""
    package, _, rest = name.partition(".")
    part = rest.partition(".")[0]
    if package == "terngrad_tf" and part in LAYERS:
        return package, LAYERS.index(part)
    if package == "slim_data":
        is_program = part not in DATA_LAYERS
        return package, len(DATA_LAYERS) if is_program else DATA_LAYERS.index(part)
    return None


def room_of(name, package, rooms):
    """Returns (room, rank) of a module of `package`, or None."""
    part = name.removeprefix(package + ".").partition(".")[0] if within(name, package) else ""
    return (part, rooms.index(part)) if part in rooms else None


def used_names(source, module, is_package, known):
    """Returns imported modules, and used attributes of `tf` with their full names."""
    names = source_tree.imported_modules(source, module, is_package, known)
    for chain in source_tree.attribute_chains(source):
        head, _, rest = chain.partition(".")
        if head in ("tf", "tensorflow"):
            names.add(f"tensorflow.{rest}")
    return names


def violations(module, source, is_package=False, known=()):
    """Returns one sentence for each import rule that the source of `module` breaks."""
    names = used_names(source, module, is_package, known)
    found = []

    def refuse(forbidden, reason):
        found.extend(f"{module} uses {n}: {reason}" for n in sorted(names) if within(n, forbidden))

    rank = layer_of(module)
    if rank is not None:
        for name in sorted(names):
            other = layer_of(name)
            if other is not None and other[0] == rank[0] and other[1] > rank[1]:
                found.append(f"{module} uses {name}: layers import downwards only")
        # Only programs may import the top package, which imports the layers.
        if "terngrad_tf" in names and not within(module, "terngrad_tf.bin"):
            found.append(f"{module} uses terngrad_tf: import the layer that holds the name")
    for package, rooms in WITH_ROOMS.items():
        room = room_of(module, package, rooms)
        for name in sorted(names):
            other = room_of(name, package, rooms)
            if room is not None and other is not None and other[1] > room[1]:
                found.append(f"{module} uses {name}: {room[0]} lies below {other[0]}")
            elif room is not None and name == package and not is_package:
                found.append(f"{module} uses {name}: import the module that holds the name")
    if within(module, "slim_data"):
        for forbidden in NOT_IN_SLIM_DATA:
            refuse(forbidden, "slim_data stands alone and needs no Keras")
    elif rank is None or rank[1] < LAYERS.index("training"):
        refuse("slim_data", "only training and what lies above may read data")
        allowed = CORE_PACKAGES | set(source_tree.PACKAGES) | set(sys.stdlib_module_names)
        for name in sorted(n for n in names if n.split(".")[0] not in allowed):
            found.append(f"{module} uses {name}: the core needs {sorted(CORE_PACKAGES)} alone")
    if within(module, "terngrad_tf.ternary"):
        for forbidden in NOT_IN_TERNARY:
            refuse(forbidden, "ternary is pure tensor maths")
        if not within(module, FUSED_PACKAGE) and module != "terngrad_tf.ternary":
            refuse(FUSED_PACKAGE, "the readable definition stands alone")
    if not within(module, PRIVATE_PACKAGE):
        for forbidden in PRIVATE_MODULES:
            refuse(forbidden, f"private modules belong into {PRIVATE_PACKAGE}")
        for name in sorted(source_tree.foreign_private_attributes(source, module, is_package)):
            found.append(f"{module} uses {name}: private names belong into {PRIVATE_PACKAGE}")
    if not within(module, "terngrad_tf.bin") and module not in commands():
        for forbidden in ("absl.flags", "absl.app"):
            refuse(forbidden, "flags end in the programs")
    return found


def needs_of_features(module, source, is_package=False, known=None):
    """Returns one sentence for each import that keeps a feature from being deleted."""
    known = source_tree.modules() if known is None else known
    whole = source_tree.imported_modules(source, module, is_package, known)
    at_once = source_tree.imported_modules(without_functions(source), module, is_package, known)
    found = []
    for feature, entries in FEATURES.items():
        if within(module, feature):
            continue
        if module not in entries and any(within(name, feature) for name in whole):
            found.append(f"{module} uses {feature}: only {sorted(entries)} may")
        elif module not in commands() and any(within(name, feature) for name in at_once):
            found.append(f"{module} uses {feature}: import the feature where it is asked for")
    return found


def without_functions(source):
    """Returns `source` without the bodies of functions and without imports for type checkers."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [ast.Pass()]
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


def export_violations(package, source):
    """Returns one sentence for each statement of an `__init__.py` that is no re-export."""
    found = []
    exported = None
    body = ast.parse(source).body
    late = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in body)
    for node in body:
        target = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
        if target == "__all__":
            exported = node.value
        elif late and target.startswith("_") and not isinstance(node.value, ast.Call):
            pass  # a table of lazily loaded names
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pass  # the same names for editors
        elif not (
            isinstance(node, (ast.Import, ast.ImportFrom))
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            # Lazy loading keeps the package's import fast.
            or (isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__"))
        ):
            found.append(f"{package}/__init__.py: line {node.lineno} does more than re-export")
    if exported is None:
        found.append(f"{package}/__init__.py has no __all__")
    return found


def unannotated(source):
    """Returns (function, parameter) for each untyped parameter of a public function."""
    found = []

    def look(node, prefix):
        for child in node.body:
            is_class = isinstance(child, ast.ClassDef)
            name = getattr(child, "name", "_")
            if name.startswith("_") and not name.endswith("__"):
                continue
            if is_class:
                look(child, f"{prefix}{name}.")
            elif isinstance(child, ast.FunctionDef):
                arguments = child.args
                taken = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                taken += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
                missing = [a.arg for a in taken if a.annotation is None]
                found.extend((prefix + name, a) for a in missing if a not in ("self", "cls"))

    look(ast.parse(source), "")
    return found


class LayersTest(unittest.TestCase):
    def test_sources_keep_the_rules(self):
        modules = source_tree.modules()
        found = []
        for name, path in modules.items():
            source = (source_tree.ROOT / path).read_text(encoding="utf-8")
            found += violations(name, source, path.name == "__init__.py", modules)
        self.assertEqual(found, [])

    def test_packages_only_re_export(self):
        found = []
        for name, path in source_tree.modules().items():
            if path.name == "__init__.py":
                source = (source_tree.ROOT / path).read_text(encoding="utf-8")
                found += export_violations(name.replace(".", "/"), source)
        self.assertEqual(found, [])

    def test_parameters_of_public_functions_are_annotated(self):
        found = []
        for name, path in source_tree.modules().items():
            source = (source_tree.ROOT / path).read_text(encoding="utf-8")
            found += [f"{name}.{function}: {taken}" for function, taken in unannotated(source)]
        self.assertEqual(found, [])

    def test_every_folder_of_modules_is_a_package(self):
        names = source_tree.modules()
        bare = {n.rpartition(".")[0] for n in names if "." in n} - set(names)
        self.assertEqual(sorted(bare), [])

    def test_rooms_are_there(self):
        for package, rooms in WITH_ROOMS.items():
            inside = [n for n in source_tree.modules() if within(n, package) and n != package]
            parts = {n.removeprefix(package + ".").partition(".")[0] for n in inside}
            self.assertEqual(sorted(set(rooms) - parts), [])

    def test_folders_hold_few_modules(self):
        listed = commands() | {f"terngrad_tf.models.{name}" for name in models.available()}
        folders = {}
        for name, path in source_tree.modules().items():
            if path.name != "__init__.py" and name not in listed:
                folders.setdefault(name.rpartition(".")[0], []).append(name)
        self.assertEqual({n: m for n, m in folders.items() if len(m) > MAX_MODULES}, {})

    def test_folders_of_tests_mirror_packages(self):
        packages = {str(path.parent) for path in source_tree.modules().values()}
        mirrored = packages | {p.removeprefix("terngrad_tf/") for p in packages}
        folders = source_tree.tests_by_folder()
        found = [f for f in folders if f.partition("/")[0] not in OTHER_TESTS and f not in mirrored]
        self.assertEqual(found, ["."])
        crowded = {f: names for f, names in folders.items() if len(names) > MAX_MODULES}
        self.assertEqual(crowded, {})

    def test_features_can_be_deleted(self):
        found = []
        for name, path in source_tree.modules().items():
            source = (source_tree.ROOT / path).read_text(encoding="utf-8")
            found += needs_of_features(name, source, path.name == "__init__.py")
        self.assertEqual(found, [])
        for feature, entries in FEATURES.items():
            self.assertEqual(sorted({feature, *entries} - set(source_tree.modules())), [])

    def test_names_for_editors_are_the_lazily_loaded_names(self):
        for name in ("terngrad_tf", DISTRIBUTE_PACKAGE):
            package = importlib.import_module(name)
            tree = ast.parse(pathlib.Path(package.__file__).read_text(encoding="utf-8"))
            (block,) = [n for n in tree.body if isinstance(n, ast.If)]
            read = {a.name for node in block.body for a in node.names}
            self.assertEqual(read, set(package._ORIGINS), name)

    def test_exported_names_exist(self):
        for name, path in source_tree.modules().items():
            with self.subTest(name=name):
                if path.name == "__init__.py":
                    package = importlib.import_module(name)
                    missing = [n for n in package.__all__ if not hasattr(package, n)]
                    self.assertEqual(missing, [], name)

    def test_console_commands_exist(self):
        modules = source_tree.modules()
        for name in commands():
            with self.subTest(name=name):
                self.assertIn(name, modules)
                self.assertTrue(callable(getattr(importlib.import_module(name), "run", None)), name)

    def test_slim_data_imports_no_keras(self):
        self.assert_imports_none_of(
            ["keras"], [n for n in source_tree.modules() if within(n, "slim_data")]
        )

    def test_help_of_commands_imports_no_slow_package(self):
        # Programs must set the Keras backend before Keras is imported.
        libraries = ["keras", "tensorflow", "tensorboard", "sklearn", "plotly"]
        self.assert_imports_none_of(libraries, commands())

    def assert_imports_none_of(self, libraries, names):
        program = (
            f"import importlib, sys; [importlib.import_module(n) for n in {sorted(names)}]; "
            f"print([m for m in {libraries} if m in sys.modules])"
        )
        result = subprocess.run(
            [sys.executable, "-c", program],
            cwd=source_tree.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(result.stdout.strip(), "[]", result.stderr[-2000:])


class RulesTest(unittest.TestCase):
    """Each rule refuses what it forbids, and nothing else."""

    def assert_refused(self, module, source, part):
        found = violations(module, source, known=("terngrad_tf.bin.x", "terngrad_tf.models"))
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_upward_imports_are_refused(self):
        for source in (
            "from terngrad_tf.models import build",
            "import terngrad_tf.models.lenet",
            "def f():\n    from ..models import lenet",
            "from terngrad_tf import models",
            "import importlib\nimportlib.import_module('terngrad_tf.models')",
        ):
            with self.subTest(source=source):
                self.assert_refused("terngrad_tf.ternary.codec", source, "downwards")

    def test_upward_imports_within_distribute_are_refused(self):
        for module, source, part in (
            ("communication.peers", "import terngrad_tf.distribute.cluster.exits", "below cluster"),
            ("exchange.x", "from terngrad_tf.distribute.strategy import A", "below strategy"),
            ("private.data.x", "import terngrad_tf.distribute.private.keras.y", "below keras"),
            ("elastic.x", "from terngrad_tf.distribute import TernGradStrategy", "the module"),
        ):
            with self.subTest(module=module):
                found = violations(f"{DISTRIBUTE_PACKAGE}.{module}", source)
                self.assertEqual(len(found), 1, found)
                self.assertIn(part, found[0])
        source = "from terngrad_tf.distribute.exchange import traffic"
        self.assertEqual(violations(f"{DISTRIBUTE_PACKAGE}.telemetry.x", source), [])

    def test_upward_imports_within_slim_data_are_refused(self):
        for module, source in (
            ("slim_data.tfrecord.shards", "from slim_data.datasets import registry"),
            ("slim_data.common.errors", "def f():\n    from slim_data.files import opening"),
            ("slim_data.datasets.mnist", "import slim_data"),
            ("slim_data.cli.program", "from slim_data.validate import run"),
        ):
            with self.subTest(module=module):
                self.assert_refused(module, source, "downwards")

    def test_downward_and_sideways_imports_pass(self):
        for module, source in (
            ("terngrad_tf.bin.x", "from terngrad_tf.ternary import codec\nimport slim_data"),
            ("terngrad_tf.ternary.codec", "from terngrad_tf.ternary import hashing"),
            ("terngrad_tf.training.x", "import slim_data.datasets"),
            ("slim_data.datasets.mnist", "from slim_data.files import download"),
            ("slim_data.validate", "from slim_data.input import validation"),
            ("slim_data.download_and_convert_data", "from absl import app, flags"),
            ("terngrad_tf.distribute.private", "from tensorflow.python.framework import ops"),
        ):
            with self.subTest(module=module):
                self.assertEqual(violations(module, source), [])

    def test_the_front_door_is_closed_to_layers(self):
        self.assert_refused("terngrad_tf.models.lenet", "import terngrad_tf", "the layer")
        self.assertEqual(violations("terngrad_tf.bin.x", "import terngrad_tf"), [])

    def test_slim_data_stands_alone(self):
        for source in (
            "import terngrad_tf",
            "import keras",
            "from tensorflow import keras",
            "import tensorflow as tf\nx = tf.keras.layers.Dense",
        ):
            with self.subTest(source=source):
                self.assertTrue(violations("slim_data.mnist", source))

    def test_only_bin_and_training_read_data(self):
        for layer in ("models", "distribute", "ternary"):
            with self.subTest(layer=layer):
                self.assert_refused(f"terngrad_tf.{layer}.x", "import slim_data", "read data")
        self.assert_refused("terngrad_tf", "from slim_data import mnist", "read data")

    def test_the_core_needs_few_packages(self):
        for module in ("ternary.codec", "distribute.cluster", "subspace.pca", "common.files"):
            with self.subTest(module=module):
                source = "import numpy as np, os\nfrom scipy import io"
                self.assert_refused(f"terngrad_tf.{module}", source, "the core needs")

    def test_ternary_is_pure(self):
        for source in (
            "import keras",
            "from absl import logging",
            "import tensorflow as tf\nx = tf.distribute.get_replica_context()",
        ):
            with self.subTest(source=source):
                self.assertTrue(violations("terngrad_tf.ternary.scale", source))

    def test_the_definition_of_ternary_stands_alone(self):
        source = "import terngrad_tf.ternary.fused"
        self.assert_refused("terngrad_tf.ternary.quantizer", source, "stands alone")
        self.assertEqual(violations("terngrad_tf.ternary.fused.encoder", source), [])

    def test_private_modules_are_refused_elsewhere(self):
        for module in ("terngrad_tf.distribute.strategy", "terngrad_tf.training.x", "slim_data.x"):
            for source in (
                "from tensorflow.python.framework import ops",
                "import tensorflow as tf\nx = tf.python.framework",
            ):
                with self.subTest(case=(module, source)):
                    self.assert_refused(module, source, "private")
        self.assert_refused("terngrad_tf.bin.x", "from keras.src import backend", "private")

    def test_private_attributes_are_refused_elsewhere(self):
        for source in (
            "optimizer._reduce(x)",
            "setattr(model, '_built', True)",
            "class A:\n    def f(self, other): return other.x._y",
        ):
            with self.subTest(source=source):
                self.assert_refused("terngrad_tf.training.x", source, "private names")
                self.assertEqual(violations(PRIVATE_PACKAGE, source), [])
        own = (
            "class B:\n    _x = 1\n"
            "class A(B):\n    def f(self): return self._x + super()._x + A._x + len(self.__dict__)"
        )
        self.assertEqual(violations("terngrad_tf.training.x", own), [])

    def test_private_attributes_inherited_from_others_are_refused(self):
        keras_class = "import keras\nclass A(keras.optimizers.Adam):\n    "
        for source in (
            keras_class + "def f(self): return self._velocities",
            keras_class + "def f(self): self._calls += 1",
            keras_class + "@classmethod\n    def f(cls): return getattr(cls, '_x')",
            keras_class + "def _x(self): return super()._x()",
            keras_class + "class B:\n        _x = 1\n    def f(self): return self._x",
            "from terngrad_tf.distribute import AbsAdam\n"
            "class A(AbsAdam):\n    def f(self): return self._learning_rate",
        ):
            with self.subTest(source=source):
                self.assert_refused("terngrad_tf.training.x", source, "private names")

    def test_private_attributes_inherited_within_the_project_pass(self):
        for source in (
            "from terngrad_tf.distribute import AbsAdam\n"
            "class A(AbsAdam):\n    def f(self): return self._slots",
            "from terngrad_tf.distribute import abs_adam as a\n"
            "class A(a.AbsAdam):\n    def f(self): return super()._slots",
            "class A:\n    _x: int\n    def f(self): return self._x",
            "class A:\n    def f(self): (self._x, self._y), z = g()\n"
            "class B(A):\n    def f(self): return self._x + A._y",
            "class A:\n    def f(self):\n        setattr(self, '_x', 1)\n        return self._x",
        ):
            with self.subTest(source=source):
                self.assertEqual(violations("terngrad_tf.training.x", source), [])

    def test_flags_end_in_programs(self):
        self.assert_refused("terngrad_tf.training.x", "from absl import flags", "flags")
        self.assert_refused("slim_data.mnist", "from absl import app", "flags")

    def test_needs_of_features_are_refused(self):
        late = "def f():\n    from terngrad_tf.reports import write"
        for module, source in (
            ("terngrad_tf.training.x", late),
            ("terngrad_tf.bin.mnist_train", "import terngrad_tf.phase_2.trainer"),
            ("terngrad_tf.bin.common.run_reports", "import terngrad_tf.reports"),
        ):
            with self.subTest(module=module):
                self.assertEqual(len(needs_of_features(module, source)), 1)
        for module, source in (
            ("terngrad_tf.bin.common.run_reports", late),
            ("terngrad_tf.bin.report", "import terngrad_tf.reports"),
            ("terngrad_tf.reports.x", "import terngrad_tf.reports.page"),
        ):
            with self.subTest(module=module):
                self.assertEqual(needs_of_features(module, source), [])

    def test_packages_that_compute_are_refused(self):
        self.assertEqual(export_violations("p", '"""Doc."""\nfrom a import b\n__all__ = ["b"]'), [])
        self.assertEqual(len(export_violations("p", "from a import b")), 1)
        self.assertEqual(len(export_violations("p", "__all__ = []\nx = 1")), 1)
        self.assertEqual(len(export_violations("p", "__all__ = []\n_x = {}")), 1)
        late = '__all__ = ["b"]\n_ORIGINS = {"b": "p.a"}\ndef __getattr__(name): ...'
        self.assertEqual(export_violations("p", late), [])

    def test_parameters_without_a_type_are_found(self):
        source = (
            "def f(x: int, y, *, z): ...\ndef _g(x): ...\n"
            "class A:\n    def __init__(self, x): ...\n    def _h(self, x): ..."
        )
        self.assertEqual(unannotated(source), [("f", "y"), ("f", "z"), ("A.__init__", "x")])

    def test_lazily_loaded_names_count_as_imports(self):
        late = '_ORIGINS = {"b": "terngrad_tf.models"}\ndef __getattr__(name): ...'
        known = ("terngrad_tf.models",)
        self.assertEqual(len(violations("terngrad_tf.ternary", late, True, known)), 1)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

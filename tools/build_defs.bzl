"""Macros of the BUILD files: a folder of modules or of tests is one call.

tests/build_files.py reads the BUILD files and this one as Python: use what both languages share.
"""

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

# Folders with Python files and a BUILD file; what lies below without one belongs to the folder.
PACKAGES = [
    "terngrad_tf",
    "terngrad_tf/bin",
    "terngrad_tf/checkpoints",
    "terngrad_tf/distribute",
    "terngrad_tf/distribute/private",
    "terngrad_tf/distribute/steps",
    "terngrad_tf/launcher",
    "terngrad_tf/models",
    "terngrad_tf/parameter_server",
    "terngrad_tf/phase_2",
    "terngrad_tf/reports",
    "terngrad_tf/subspace",
    "terngrad_tf/ternary",
    "terngrad_tf/training",
    "slim_data",
]
TESTS = [
    "tests/benchmarks",
    "tests/bin",
    "tests/bin/command",
    "tests/bin/common",
    "tests/checkpoints",
    "tests/clients",
    "tests/clients/losses",
    "tests/clients/state",
    "tests/clients/two_processes",
    "tests/common",
    "tests/distribute",
    "tests/distribute/cluster",
    "tests/distribute/communication",
    "tests/distribute/consistency",
    "tests/distribute/elastic",
    "tests/distribute/exchange",
    "tests/distribute/local_sgd",
    "tests/distribute/private",
    "tests/distribute/private/collectives",
    "tests/distribute/private/data",
    "tests/distribute/private/keras",
    "tests/distribute/private/replicas",
    "tests/distribute/private/strategies",
    "tests/distribute/telemetry",
    "tests/distribute/wire_selection",
    "tests/docs",
    "tests/fuzz",
    "tests/harness",
    "tests/launcher",
    "tests/models",
    "tests/parameter_server",
    "tests/phase_2",
    "tests/reports",
    "tests/scripts",
    "tests/slim_data",
    "tests/slim_data/cli",
    "tests/slim_data/common",
    "tests/slim_data/datasets",
    "tests/slim_data/datasets/imagenet",
    "tests/slim_data/files",
    "tests/slim_data/input",
    "tests/slim_data/preprocessing",
    "tests/slim_data/tfrecord",
    "tests/startup",
    "tests/subspace",
    "tests/subspace/components",
    "tests/subspace/optimizers",
    "tests/subspace/weights",
    "tests/ternary",
    "tests/ternary/fused",
    "tests/training/configs",
    "tests/training/evaluation",
    "tests/training/input",
    "tests/training/logs",
    "tests/training/network",
    "tests/training/optimization",
    "tests/training/runs",
    "tests/training/storage",
]

# Programs of terngrad_tf/bin; those of TernGrad's README have the name //inception:<name> too.
SEED_PROGRAMS = [
    "cifar10_distributed_train",
    "cifar10_eval",
    "cifar10_train",
    "flowers_eval",
    "flowers_train",
    "imagenet_distributed_train",
    "imagenet_eval",
    "imagenet_train",
    "mnist_distributed_train",
    "mnist_eval",
    "mnist_train",
]
PROGRAMS = SEED_PROGRAMS + [
    "average_snapshots",
    "export",
    "predict",
    "quickstart",
    "report",
    "resnet50_imagenet_stage_1",
    "subspace_train",
]

# Third-party packages that any test may import.
_TEST_PACKAGES = [
    "absl_py",
    "hypothesis",
    "keras",
    "matplotlib",
    "numpy",
    "packaging",
    "pillow",
    "plotly",
    "pytest",
    "pyyaml",
    "safetensors",
    "scikit_learn",
    "scipy",
    "tensorboard",
    "tensorflow",
]

def _name():
    return native.package_name().split("/")[-1]

def _pypi(packages):
    return ["@pypi//" + package for package in packages]

def sources():
    """The files of this folder, as `:sources`, for tests that read the checkout."""
    native.filegroup(
        name = "sources",
        srcs = native.glob(["**"], exclude = ["**/*.pyc"]),
        visibility = ["//tests:__subpackages__"],
    )

def modules(packages, users, deps = [], name = None, exclude = [], programs = [], data = []):
    """A library of all the modules of this folder, and its programs.

    Args:
      packages: names of the third-party packages that the modules import.
      users: packages that may depend on the library, besides benchmarks and tests.
      deps: labels of the project's own libraries that the modules import.
      name: the library's name; by default the folder's.
      exclude: files left out.
      programs: names of the modules that are programs.
      data: files that the modules need when they run.
    """
    sources()
    py_library(
        name = name or _name(),
        srcs = native.glob(["**/*.py"], exclude = exclude),
        data = data,
        visibility = ["//benchmarks:__pkg__", "//tests:__subpackages__"] + users,
        deps = deps + _pypi(packages),
    )
    for program in programs:
        py_binary(
            name = program,
            srcs = [program + ".py"],
            visibility = ["//visibility:public"],
            deps = [":" + (name or _name())],
        )

def tests(deps = [], test_deps = [], data = [], **kwargs):
    """A library of this folder's helpers of tests, named as the folder, and its `*_test.py`.

    Args:
      deps: labels of the project's own libraries that helpers and tests import.
      test_deps: further ones, which only tests import.
      data: files that the tests read.
      **kwargs: further attributes of each `py_test`.
    """
    sources()
    py_library(
        name = _name(),
        srcs = native.glob(["*.py"], exclude = ["*_test.py"], allow_empty = True),
        visibility = ["//tests:__subpackages__"],
        deps = deps + _pypi(_TEST_PACKAGES),
    )
    for file in native.glob(["*_test.py"]):
        # pytest loads //tests:conftest.py, and reads its settings, for every test.
        needed = ["//tests", "//" + native.package_name()] + deps + test_deps
        py_test(
            name = file[:-len(".py")],
            srcs = [file],
            data = ["//:pyproject.toml"] + data,
            deps = list({label: None for label in needed}) + _pypi(_TEST_PACKAGES),
            **kwargs
        )

def tests_of_distribute(deps = []):
    """`tests` of a room of terngrad_tf/distribute, which use the helpers in //tests/distribute.

    Args:
      deps: labels of further libraries that helpers and tests import.
    """
    tests(
        deps = [
            "//benchmarks",
            "//terngrad_tf",
            "//terngrad_tf:base",
            "//terngrad_tf/distribute",
            "//terngrad_tf/distribute/private",
            "//terngrad_tf/subspace",
            "//terngrad_tf/ternary",
            "//tests/distribute",
        ] + deps,
    )

def tests_of_slim_data(data = []):
    """`tests` of a room of slim_data, which use the helpers in //tests/slim_data.

    Args:
      data: files that the tests read.
    """
    tests(
        data = data,
        deps = [
            "//slim_data",
            "//tests/slim_data",
        ],
        test_deps = ["//tests/fuzz"],
    )

def tests_of_programs():
    """`tests` of what the programs call: training, and the features beside it."""
    tests(
        deps = [
            "//slim_data",
            "//terngrad_tf",
            "//terngrad_tf:base",
            "//terngrad_tf/bin",
            "//terngrad_tf/checkpoints",
            "//terngrad_tf/distribute",
            "//terngrad_tf/models",
            "//terngrad_tf/parameter_server",
            "//terngrad_tf/phase_2",
            "//terngrad_tf/reports",
            "//terngrad_tf/subspace",
            "//terngrad_tf/ternary",
            "//terngrad_tf/training",
        ],
        test_deps = [
            "//tests/bin",
            "//tests/distribute",
            "//tests/slim_data",
        ],
    )

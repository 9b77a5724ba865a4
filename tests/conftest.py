"""What holds for every test."""

import collections
import gc
import os
import pathlib
import signal

from tests.startup import sitecustomize

# A shell that runs the tests in the background makes them, and the programs that they start, ignore
# Ctrl-C; what Ctrl-C does is tested too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# So that programs that the tests start find the packages, and start sooner.
_STARTUP = pathlib.Path(sitecustomize.__file__).parent
_PATHS = (
    str(_STARTUP),
    str(_STARTUP.parents[1]),
    *os.environ.get("PYTHONPATH", "").split(os.pathsep),
)
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, _PATHS)))


def pytest_configure(config):
    """Makes the devices of the tests, before TensorFlow fixes them at their first use."""
    if not config.getoption("--gpu"):
        # Theirs, and of the programs that they start: GPUs do not give the same bits twice.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Several processes may share a GPU.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    if config.getoption("numprocesses", None):
        return  # The processes that it starts run the tests.
    # Not above: this takes seconds.
    import tensorflow as tf

    # Tests of strategies need several.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )


def pytest_collection_modifyitems(items):
    """Drops `test_session`, a helper of `tf.test.TestCase` whose name only looks like a test's."""
    items[:] = [item for item in items if item.name != "test_session"]


def pytest_collection_finish():
    """Looks for garbage, which `keras.utils.clear_session` asks for, leave imported modules out."""
    gc.freeze()


def pytest_addoption(parser):
    """Adds the options of `tests/distribute/gpu_test.py` and `tests/fuzz`."""
    parser.addoption("--gpu", action="store_true", help="Let tests use the GPU.")
    parser.addoption(
        "--fuzz-seconds",
        type=float,
        default=0,
        metavar="N",
        help="Give each fuzzer of tests/fuzz new hostile inputs for N seconds.",
    )


def pytest_terminal_summary(terminalreporter):
    """Tells how many inputs the fuzzers gave, also where several processes ran them."""
    counts = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                found = [value for key, value in report.user_properties if key == "fuzz"]
                counts.update({what: count for what, count in found})
    if counts:
        terminalreporter.section("hostile inputs")
        for what, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:10,}  {what}")
        terminalreporter.write_line(f"{counts.total():10,}  in all")

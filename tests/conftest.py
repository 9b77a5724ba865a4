"""Setup for all tests."""

import collections
import gc
import math
import os
import pathlib
import signal
import time

import pytest

from tests.startup import sitecustomize

# If a shell runs the tests in the background, they and their programs ignore Ctrl-C, which some
# tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs that the tests start find the packages, and start faster.
_STARTUP = pathlib.Path(sitecustomize.__file__).parent
_PATHS = (
    str(_STARTUP),
    str(_STARTUP.parents[1]),
    *os.environ.get("PYTHONPATH", "").split(os.pathsep),
)
os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, _PATHS)))


def pytest_configure(config):
    """Sets up the devices before TensorFlow's first use fixes them."""
    if not config.getoption("--gpu"):
        # Also hides GPUs from started programs: GPUs do not reproduce results bit for bit.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Several processes may share a GPU.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    if config.getoption("numprocesses", None):
        return  # its child processes run the tests
    # Imported here because it takes seconds.
    import tensorflow as tf

    # Strategies need several devices.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    _do_not_tune_inputs(tf)


def _do_not_tune_inputs(tf):
    """Turns off the tuning of all input pipelines of this process.

    If an iterator is deleted before its data end, TensorFlow may wait for the tuning's thread,
    which sleeps up to a minute.
    """
    apply = tf.data.Dataset._apply_debug_options

    def apply_untuned(dataset):
        options = tf.data.Options()
        options.autotune.enabled = False
        return apply(dataset.with_options(options))

    tf.data.Dataset._apply_debug_options = apply_untuned


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Goes on after a process has crashed, with `--dist=loadfile`; pytest-xdist may wait forever.

    It gives the files that the process had finished to others, which report nothing for them and
    so get no further files. And it gives the process in its place a single file; a process keeps
    its last test until it gets another one or is told that there is none.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def remove_node(self, node):
            files = self.assigned_work[node]
            for file in [file for file, tests in files.items() if all(tests.values())]:
                del files[file]
            return super().remove_node(node)

        def schedule(self):
            super().schedule()
            super().schedule()

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Drops a helper of `tf.test.TestCase`, and marks further cases of tests as slow."""
    items[:] = [item for item in items if item.name != "test_session"]
    seen = collections.Counter()
    for item in items:
        if mark := item.get_closest_marker("default_cases"):
            # All cases of a test have one mark.
            seen[item.parent, id(mark)] += 1
            if seen[item.parent, id(mark)] > mark.args[0]:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Excludes imported modules from the garbage collections of `keras.utils.clear_session`."""
    gc.freeze()


def pytest_addoption(parser):
    """Adds the options of `tests/distribute/gpu_test.py`, `tests/fuzz` and `.ci/run`."""
    parser.addoption("--gpu", action="store_true", help="Let tests use the GPU.")
    parser.addoption(
        "--fuzz-seconds",
        type=float,
        default=0,
        metavar="N",
        help="Give each fuzzer of tests/fuzz new hostile inputs for N seconds.",
    )
    parser.addoption(
        "--begin-until",
        type=float,
        default=math.inf,
        metavar="TIME",
        help="Skip tests whose turn comes after this time, in seconds since 1970.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skips a test whose turn comes too late."""
    if time.time() > item.config.getoption("--begin-until"):
        pytest.skip("its turn came after --begin-until")


def pytest_terminal_summary(terminalreporter):
    """Reports the number of fuzzed inputs, summed over processes."""
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

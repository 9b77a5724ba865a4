"""What holds for every test."""

import signal

import tensorflow as tf

# A shell that runs the tests in the background makes them, and the programs that they start, ignore
# Ctrl-C; what Ctrl-C does is tested too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow fixes its devices at the first use; tests of strategies need several.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def pytest_collection_modifyitems(items):
    """Drops `test_session`, a helper of `tf.test.TestCase` whose name only looks like a test's."""
    items[:] = [item for item in items if item.name != "test_session"]

"""What holds for every test."""

import tensorflow as tf

# TensorFlow fixes its devices at the first use; tests of strategies need several.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
)


def pytest_collection_modifyitems(items):
    """Drops `test_session`, a helper of `tf.test.TestCase` whose name only looks like a test's."""
    items[:] = [item for item in items if item.name != "test_session"]

"""What holds for every test."""


def pytest_collection_modifyitems(items):
    """Drops `test_session`, a helper of `tf.test.TestCase` whose name only looks like a test's."""
    items[:] = [item for item in items if item.name != "test_session"]

"""Helpers for tests of training runs."""

import pathlib
import tempfile

import tensorflow as tf


def class_folder(test_class):
    """Returns an empty folder that lasts as long as the tests of a class."""
    folder = tempfile.TemporaryDirectory()
    test_class.addClassCleanup(folder.cleanup)
    return pathlib.Path(folder.name)


def saved(checkpoint):
    """Returns all saved arrays of a checkpoint by name, except the count of saves."""
    reader = tf.train.load_checkpoint(str(checkpoint))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH" and not name.startswith("save_counter")
    }

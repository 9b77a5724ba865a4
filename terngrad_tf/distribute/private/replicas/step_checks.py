"""Checks numbers while a step runs, and lets failures end in one line."""

import re
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from terngrad_tf.distribute.private.patches import patch

# Encloses the message, which TensorFlow escapes and surrounds with lines.
_MARK = "=!="
_FAILED = re.compile(f"{_MARK}(.*?){_MARK}", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")


def assert_on_host(condition: Any, message: str) -> Any:
    """Makes a step fail with a ValueError if a condition is false.

    TensorFlow's assertions do nothing on a GPU; assertions that print numbers run in a branch,
    which ignores `tf.device`.

    Returns:
        The operation on which others must depend; None in eager code, which fails at once.
    """
    if tf.executing_eagerly():
        if not condition:
            raise ValueError(message)
        return None
    with tf.device("CPU:0"):
        return tf.debugging.Assert(condition, [f"{_MARK}{message}{_MARK}"])


@patch(polymorphic_function.Function, "__call__")
def _fail_in_one_line(stock, self, *args, **kwargs):
    """Raises a failed check's message in place of TensorFlow's error of some 60 lines.

    The step's callers, Keras or a user's loop, get only the text of an error.
    """
    try:
        return stock(self, *args, **kwargs)
    except tf.errors.InvalidArgumentError as error:
        failed = _FAILED.search(error.message)
        if failed is None:
            raise
        line = _ESCAPED.sub(r"\1", failed.group(1))
    raise ValueError(line)

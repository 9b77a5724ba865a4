"""Checks of numbers that a step makes while it runs, and how they fail: in one line."""

import re
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from terngrad_tf.distribute.private.patches import patch

# Around the message, which TensorFlow escapes and puts among a line for each call of the step.
_MARK = "=!="
_FAILED = re.compile(f"{_MARK}(.*?){_MARK}", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")


def assert_on_host(condition: Any, message: str) -> Any:
    """Lets a step fail with a ValueError where a condition is false.

    TensorFlow's assertions do nothing on a GPU, and those that tell numbers run in a branch, which
    is on the GPU wherever they are made.

    Args:
        condition: bool scalar.
        message: of the error.

    Returns:
        The operation that others must depend on; None in eager code, which fails at once.
    """
    if tf.executing_eagerly():
        if not condition:
            raise ValueError(message)
        return None
    with tf.device("CPU:0"):
        return tf.debugging.Assert(condition, [f"{_MARK}{message}{_MARK}"])


@patch(polymorphic_function.Function, "__call__")
def _fail_in_one_line(stock, self, *args, **kwargs):
    """Raises what a check says in place of TensorFlow's error of some 60 lines.

    A step is called by Keras, or by a loop of the user's own. TensorFlow tells neither of them more
    than the text of an error.
    """
    try:
        return stock(self, *args, **kwargs)
    except tf.errors.InvalidArgumentError as error:
        failed = _FAILED.search(error.message)
        if failed is None:
            raise
        line = _ESCAPED.sub(r"\1", failed.group(1))
    raise ValueError(line)

"""A sum of tensors whose bits do not depend on the machine's load."""

import functools
from collections.abc import Sequence

import tensorflow as tf


def sum_in_order(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns `((t_1 + t_2) + t_3) + ...`, the same bits in every run.

    `tf.add_n` writes to the first tensor that no other operation still reads, and adds that one
    first. Which one that is depends on when the others finish, so sums of three or more floats
    differ in the last bit between runs.

    Args:
        tensors: one or more tensors of one shape and dtype.

    Example:
    >>> sum_in_order([tf.constant([1.0]), tf.constant([2.0]), tf.constant([4.0])]).numpy().tolist()
    [7.0]
    """
    return functools.reduce(tf.add, tensors)

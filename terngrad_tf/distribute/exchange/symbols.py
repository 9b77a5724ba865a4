"""Finds the embedding and the last layer of a language model, whose gradients need finer codes.

Both have elements for each symbol. Those of rare symbols are small, and the noise of blocks that
hold frequent ones, too, would hide them from optimizers that divide by the size of each element,
such as Adam; see docs/results/language.md.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def symbol_positions(gradients: Sequence[Any]) -> list[int]:
    """Returns the positions of the gradients of embeddings and logits of the same symbols.

    An embedding has `tf.IndexedSlices`. The last matrix makes the logits if it has a column for
    each of an embedding's rows, or the embedding's shape. A vector of this length after it is the
    bias.

    Args:
        gradients: tensors, `tf.TensorSpec`s or `tf.IndexedSlices`, in the order of a model's
            variables.

    Example:
    >>> rows = tf.IndexedSlices(tf.zeros([2, 8]), tf.constant([1, 4]), tf.constant([73, 8]))
    >>> symbol_positions([rows, tf.zeros([8, 8]), tf.zeros([8]), tf.zeros([8, 73]), tf.zeros([73])])
    [0, 3, 4]
    >>> symbol_positions([rows, tf.zeros([8, 2]), tf.zeros([2])])
    []
    """
    shapes: list[tuple[int, ...]] = [
        tuple(g.shape) if g.shape.is_fully_defined() else () for g in gradients
    ]
    tables = [i for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices) and shapes[i]]
    matrices = [i for i, s in enumerate(shapes) if len(s) == 2 and i not in tables]
    if not tables or not matrices:
        return []
    last = matrices[-1]
    tables = [i for i in tables if shapes[i][0] == shapes[last][1] or shapes[i] == shapes[last]]
    if not tables:
        return []
    num_symbols = shapes[tables[0]][0]
    biases = [i for i in range(last + 1, len(shapes)) if shapes[i] == (num_symbols,)]
    return [*tables, last, *biases]

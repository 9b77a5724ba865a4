"""Finds the embedding and the last layer of a language model, whose gradients need finer codes.

Both have elements for each symbol. Those of rare symbols are small, and the noise of blocks that
hold frequent ones, too, would hide them from optimizers that divide by the size of each element,
such as Adam; see docs/results/language.md.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# Names of variables of `keras.layers.Embedding` and `ReversibleEmbedding`.
_TABLE, _REVERSED = "embeddings", "reverse_embeddings"


def symbol_positions(gradients: Sequence[Any], paths: Sequence[str]) -> list[int]:
    """Returns the positions of the gradients of embeddings and logits of the same symbols.

    An embedding has `tf.IndexedSlices`. Its gradient is dense if Keras accumulates gradients, or if
    the embedding makes the logits, too: the name that Keras gives its variable identifies it.
    Otherwise the matrix that Keras calls `reverse_embeddings` makes the logits, or the last matrix,
    if it has a column for each of an embedding's rows, or the embedding's shape. A vector of this
    length after it is the bias.

    Args:
        gradients: tensors, `tf.TensorSpec`s or `tf.IndexedSlices`, in the order of a model's
            variables.
        paths: their variables' paths, as in `keras.Variable.path`.

    Example:
    >>> rows = tf.IndexedSlices(tf.zeros([2, 8]), tf.constant([1, 4]), tf.constant([73, 8]))
    >>> paths = ["e/embeddings", "d/kernel", "d/bias", "logits/kernel", "logits/bias"]
    >>> dense = [tf.zeros(shape) for shape in ([8, 8], [8], [8, 73], [73])]
    >>> symbol_positions([rows, *dense], paths)
    [0, 3, 4]
    >>> symbol_positions([rows, *dense[:2]], paths[:3])
    []
    >>> symbol_positions([tf.zeros([73, 8]), *dense[:2]], paths[:3])
    [0]
    """
    shapes: list[tuple[int, ...]] = [
        tuple(g.shape) if g.shape.is_fully_defined() else () for g in gradients
    ]
    names = [path.rpartition("/")[2] for path in paths]
    sparse = [i for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices) and shapes[i]]
    whole = [
        i
        for i, name in enumerate(names)
        if name == _TABLE and i not in sparse and len(shapes[i]) == 2
    ]
    tables = [*sparse, *whole]
    matrices = [i for i, shape in enumerate(shapes) if len(shape) == 2 and i not in tables]
    if not tables or not matrices:
        return whole
    last = max(matrices, key=lambda i: (names[i] == _REVERSED, i))
    tables = [i for i in tables if shapes[i][0] == shapes[last][1] or shapes[i] == shapes[last]]
    if not tables:
        return whole
    num_symbols = shapes[tables[0]][0]
    biases = [i for i in range(last + 1, len(shapes)) if shapes[i] == (num_symbols,)]
    return sorted({*whole, *tables, last, *biases})

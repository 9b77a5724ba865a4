"""Networks of the fidelity study."""

import keras
from keras import layers, ops

from benchmarks.lib import source_text
from terngrad_tf import models

_WEIGHT_DECAY = {"lenet": 5e-4, "resnet_20": 1e-4}
# Width and number of heads of the transformers.
_WIDTH, _HEADS = 64, 4
# Rows and columns of the embedding tables, and characters that choose a row.
_ROWS, _COLUMNS, _GRAM = 2**14, 32, 3


def build(net, seed):
    """Builds the network `net` of `fidelity.settings`; `seed` draws its weights."""
    if net in _BUILDERS:
        keras.utils.set_random_seed(seed)
        return _BUILDERS[net]()
    return models.build(
        *(net, 10, 28), channels=1, weight_decay=_WEIGHT_DECAY[net], seed=1000 * seed
    )


def _small_cnn():
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPool2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPool2D(),
            layers.Flatten(),
            layers.Dense(96, "relu"),
            layers.Dense(10, name="logits", dtype="float32"),
        ]
    )


def _vit():
    """Builds a vision transformer: 49 patches of 4 x 4 pixels, two blocks."""
    images = keras.Input((28, 28, 1))
    x = layers.Conv2D(_WIDTH, 4, strides=4)(images)
    x = layers.Reshape((49, _WIDTH))(x)
    return keras.Model(images, _transformed(x, 10))


def _text_transformer():
    """Builds a transformer of bytes: eight bytes make a token, two blocks."""
    text = keras.Input((source_text.LENGTH,), dtype="int32")
    x = layers.Embedding(256, 16)(text)
    x = layers.Conv1D(_WIDTH, 8, strides=8)(x)
    return keras.Model(text, _transformed(x, len(source_text.PACKAGES)))


def _transformed(x, num_classes):
    """Applies two transformer blocks to tokens `[batch, tokens, _WIDTH]`; returns logits."""
    x = Positions()(x)
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x += layers.MultiHeadAttention(_HEADS, _WIDTH // _HEADS)(y, y)
        y = layers.LayerNormalization()(x)
        x += layers.Dense(_WIDTH)(layers.Dense(2 * _WIDTH, "gelu")(y))
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return layers.Dense(num_classes, name="logits", dtype="float32")(x)


class Positions(layers.Layer):
    """Adds a learned vector for each position."""

    def build(self, shape):
        self.table = self.add_weight(name="table", shape=shape[1:], initializer="random_normal")

    def call(self, x):
        return x + self.table


def _embeddings(dense):
    """Builds a bag of embeddings: three bytes choose a row of a table; the rows' mean decides.

    Args:
        dense: True for a dense gradient, as of a table with other uses; False for one of the chosen
            rows.
    """
    text = keras.Input((source_text.LENGTH,), dtype="int32")
    rows = _Table(dense)(_Rows()(text))
    x = layers.GlobalAveragePooling1D()(rows)
    x = layers.Dense(64, "relu")(x)
    logits = layers.Dense(len(source_text.PACKAGES), name="logits", dtype="float32")(x)
    return keras.Model(text, logits)


class _Rows(layers.Layer):
    """Maps each `_GRAM` consecutive bytes to a row of the table."""

    def call(self, text):
        number = ops.zeros_like(text[:, _GRAM - 1 :])
        for i in range(_GRAM):
            end = text.shape[1] - _GRAM + 1 + i
            number = (number * 257 + text[:, i:end]) % _ROWS
        return number


class _Table(layers.Layer):
    def __init__(self, dense):
        super().__init__()
        self._dense = dense

    def build(self, _):
        shape = _ROWS, _COLUMNS
        self.table = self.add_weight(name="table", shape=shape, initializer="random_uniform")

    def call(self, rows):
        table = ops.multiply(self.table, 1.0) if self._dense else self.table
        return ops.take(table, rows, axis=0)


_BUILDERS = {
    "small_cnn": _small_cnn,
    "vit": _vit,
    "text_transformer": _text_transformer,
    "embeddings": lambda: _embeddings(dense=False),
    "embeddings_dense": lambda: _embeddings(dense=True),
}

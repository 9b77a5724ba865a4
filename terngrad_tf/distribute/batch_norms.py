"""The batch-norm layers of a model and their statistics."""

import contextlib
from collections.abc import Iterator, Sequence

import keras

from terngrad_tf.distribute import private


def batch_norms(layer: keras.Layer) -> list[keras.layers.BatchNormalization]:
    """All batch-norm layers inside a layer, at any depth, also inside layers of one's own.

    Example:
    >>> model = keras.Sequential([keras.layers.Dense(1), keras.layers.BatchNormalization()])
    >>> len(batch_norms(model))
    1
    """
    found = private.layers_of(layer)
    return [inner for inner in found if isinstance(inner, keras.layers.BatchNormalization)]


def statistics(model: keras.Layer) -> list[keras.Variable]:
    """Moving means and variances of a model's batch-norm layers."""
    return [v for layer in batch_norms(model) for v in (layer.moving_mean, layer.moving_variance)]


@contextlib.contextmanager
def zero_momentum(layers: Sequence[keras.layers.BatchNormalization]) -> Iterator[None]:
    """Context in which a training pass sets the moving statistics to its batch's.

    Example:
    >>> layer = keras.layers.BatchNormalization()
    >>> with zero_momentum([layer]):
    ...     print(layer.momentum)
    0.0
    """
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

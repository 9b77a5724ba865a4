"""The batch-norm layers of a model and their statistics."""

import contextlib
from collections.abc import Iterator, Sequence

import keras

from terngrad_tf.distribute import private


def batch_norms(layer: keras.Layer) -> list[keras.layers.BatchNormalization]:
    """All built batch-norm layers inside a layer, at any depth, also inside layers of one's own.

    They are in the order of `layers`, from which names in checkpoints derive.

    Example:
    >>> model = keras.Sequential([keras.Input([1]), keras.layers.BatchNormalization()])
    >>> len(batch_norms(model))
    1
    """
    kind = keras.layers.BatchNormalization
    return [
        inner for inner in private.layers_in_order(layer) if isinstance(inner, kind) and inner.built
    ]


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

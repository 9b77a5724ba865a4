"""Models whose losses leave out positions of sequences, or divide by a sum of weights."""

import keras
import numpy as np
from keras import layers

from tests.clients.comparison import fit

NUM_EXAMPLES, LENGTH = 22, 5
KINDS = ("mask_zero", "ignore_class", "mean_with_sample_weight")


def data():
    """Returns token numbers padded with 0, labels of which some are -1, and weights."""
    rng = np.random.default_rng(0)
    shape = [NUM_EXAMPLES, LENGTH]
    lengths = rng.integers(1, LENGTH + 1, [NUM_EXAMPLES, 1])
    tokens = np.where(np.arange(LENGTH) < lengths, rng.integers(1, 9, shape), 0)
    labels = np.where(rng.random(shape) < 0.3, -1, rng.integers(0, 4, shape))
    # Some replicas have none.
    labels[:3] = -1
    return tokens, labels, rng.random(shape).astype(np.float32)


def train(strategy, kind, is_recurrent=False, **options):
    """Trains and evaluates; returns the history and the final weights.

    Args:
        kind: one of `KINDS`.
        is_recurrent: whether the model has a recurrent layer, which is a loop.
        **options: further arguments of `compile`.
    """
    keras.utils.set_random_seed(1)
    tokens, labels, sample_weight = data()
    with strategy.scope():
        inputs = keras.Input([LENGTH], dtype="int32")
        x = layers.Embedding(9, 6, mask_zero=kind == "mask_zero")(inputs)
        if is_recurrent:
            x = layers.GRU(6, return_sequences=True)(x)
        model = keras.Model(inputs, layers.Dense(4)(x))
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True,
            ignore_class=-1 if kind == "ignore_class" else None,
            reduction=kind if kind == "mean_with_sample_weight" else "sum_over_batch_size",
        )
        model.compile(keras.optimizers.SGD(0.5), loss, **options)
    if kind != "ignore_class":
        labels = np.maximum(labels, 0)
    given = [tokens, labels]
    given += [sample_weight] if kind == "mean_with_sample_weight" else []
    held_out = tuple(array[:13] for array in given)
    sample_weight = given[2] if len(given) > 2 else None
    return fit(model, *given[:2], sample_weight=sample_weight, validation_data=held_out)

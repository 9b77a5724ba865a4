"""Models and data of tests with `sync_seconds`, and expected results in float64."""

import keras
import numpy as np
import tensorflow as tf

NUM_FEATURES = 5
NUM_EXAMPLES = 64
# One for each process.
BATCH_SIZES = (8, 4)
_OUTER_RATE, _OUTER_MOMENTUM = 0.7, 0.5


class Falling(keras.optimizers.schedules.LearningRateSchedule):
    """`0.1 / (1 + step / 50)`."""

    def __call__(self, step):
        return 0.1 / (1 + tf.cast(step, tf.float32) / 50)

    def get_config(self):
        return {}


def part(process):
    """The examples of a process, `[n, features]` and `[n, 1]`."""
    rng = np.random.default_rng(process)
    x = rng.normal(size=(NUM_EXAMPLES, NUM_FEATURES)).astype(np.float32)
    # The data of processes differ, so that the weights of their changes matter.
    return x, (x @ np.full([NUM_FEATURES, 1], 1.0 + process)).astype(np.float32)


def network():
    return keras.Sequential(
        [
            keras.Input([NUM_FEATURES]),
            keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"),
        ]
    )


def inner():
    return keras.optimizers.SGD(Falling())


def outer():
    return keras.optimizers.SGD(_OUTER_RATE, momentum=_OUTER_MOMENTUM, nesterov=True)


def expected(own_steps, exchanges):
    """The weights after each step of `fit`, `[steps, features]`, float64.

    Args:
        own_steps: for each process, its total of own steps after each step of `fit`.
        exchanges: whether an exchange followed each step of `fit`.
    """
    weights, velocity = np.ones(NUM_FEATURES), np.zeros(NUM_FEATURES)
    own = [weights.copy() for _ in own_steps]
    taken, since = [0] * len(own_steps), [0] * len(own_steps)
    found = []
    for step, is_exchange in enumerate(exchanges):
        for process, totals in enumerate(own_steps):
            for number in range(totals[step] - taken[process]):
                gradient = _gradient(process, taken[process], own[process])
                own[process] -= 0.1 / (1 + (step + number) / 50) * gradient
                taken[process] += 1
                since[process] += BATCH_SIZES[process]
        if is_exchange:
            change = sum(n * (weights - w) for n, w in zip(since, own, strict=True)) / sum(since)
            velocity = _OUTER_MOMENTUM * velocity - _OUTER_RATE * change
            weights = weights + _OUTER_MOMENTUM * velocity - _OUTER_RATE * change
            own, since = [weights.copy() for _ in own], [0] * len(own)
        found.append(weights)
    return np.stack(found)


def _gradient(process, step, weights):
    """The gradient of the mean squared error of a process's batch number `step`."""
    x, y = (array.astype(np.float64) for array in part(process))
    rows = np.arange(step * BATCH_SIZES[process], (step + 1) * BATCH_SIZES[process]) % NUM_EXAMPLES
    return 2 * x[rows].T @ (x[rows] @ weights - y[rows, 0]) / len(rows)

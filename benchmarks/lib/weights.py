"""Values of variables, and their moving average."""

import keras
import tensorflow as tf

from terngrad_tf.training.optimization.optimizers import EMA_MOMENTUM


class MovingAverage(keras.callbacks.Callback):
    """The programs' moving average of weights, with a decay of min(0.9999, (1 + n) / (10 + n))."""

    def __init__(self, weights):
        super().__init__()
        self._weights = weights
        self._average = [tf.Variable(weight.value) for weight in weights]
        self._count = tf.Variable(0.0)
        self.state = [*self._average, self._count]

    def begin(self):
        """Starts at the current weights."""
        self._count.assign(0.0)
        assign(self._average, values(self._weights))

    def assign_to_weights(self):
        """Assigns the average to the weights."""
        assign(self._weights, values(self._average))

    def on_train_batch_end(self, batch, logs=None):
        """Counts a step."""
        self._update()

    @tf.function
    def _update(self):
        # After the first step, the average holds none of the initial weights.
        decay = tf.minimum(EMA_MOMENTUM, (1 + self._count) / (10 + self._count))
        decay = tf.where(self._count > 0, decay, 0.0)
        for average, weight in zip(self._average, self._weights, strict=True):
            average.assign(decay * average + (1 - decay) * weight)
        self._count.assign_add(1.0)


def values(variables):
    """Returns copies of variables' values, a list of arrays."""
    return [v.numpy() for v in variables]


def assign(variables, arrays):
    """Assigns arrays to variables."""
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)

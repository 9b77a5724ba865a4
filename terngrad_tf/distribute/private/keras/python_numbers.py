"""Lets Python read variables of one number, such as `optimizer.learning_rate`."""

import keras
from tensorflow.python.distribute import values

from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.strategies.strategies import is_own


@patch(keras.Variable, "__float__", "__int__")
def _number(stock, self):
    """Reads a variable for `float` and `int`, which TensorFlow's distributed variables refuse."""
    value = self.value
    is_distributed = isinstance(value, values.DistributedVariable)
    if self.ndim > 0 or not is_distributed or not is_own(value.distribute_strategy):
        return stock(self)
    return getattr(self.numpy(), stock.__name__)()

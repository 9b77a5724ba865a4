"""The slots of an optimizer: variables that belong to each weight."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import private


class Slots:
    """Finds the slots of a weight in an optimizer's `update_step`.

    Under a strategy this method gets one replica's copy of a weight, which has no path. Checkpoints
    skip this object; the optimizer must keep the lists as attributes.

    Args:
        weights: n variables, the argument of `build`.
        *slots: lists of n variables.

    Example:
        >>> weight = keras.Variable([1.0, 2.0])
        >>> optimizer = keras.optimizers.SGD()
        >>> momentum = optimizer.add_variable_from_reference(weight, "momentum")
        >>> Slots([weight], [momentum]).of(weight)[0] is momentum
        True
    """

    def __init__(self, weights: Sequence[Any], *slots: Sequence[Any]) -> None:
        rows = zip(weights, *slots, strict=True)
        self._slots = {_first_copy(weight).ref(): tuple(own) for weight, *own in rows}

    def of(self, weight: Any) -> tuple[Any, ...]:
        """Returns a slot from each list, for a weight or a replica's copy of it."""
        return self._slots[_first_copy(weight).ref()]


def _first_copy(weight):
    """Returns the first of a weight's copies under a strategy."""
    variable = weight.value if isinstance(weight, keras.Variable) else weight
    # Not the container itself: local steps have copies in another one.
    container = tf.distribute.get_strategy().extended.value_container(variable)
    return private.local_tensors(container)[0]

"""A value that its owner does not save."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Untracked:
    """Hides a value from Keras and `tf.train.Checkpoint`.

    Both save the variables, lists and optimizers that they find among an optimizer's attributes.

    Attributes:
        value: the hidden value.
    """

    value: Any

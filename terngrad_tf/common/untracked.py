"""A value that its owner does not save."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Untracked:
    """Hides a value from Keras and `tf.train.Checkpoint`, which save an optimizer's attributes."""

    value: Any

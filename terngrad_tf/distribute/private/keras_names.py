"""Private names of Keras that are not the same in all releases."""

import importlib
from typing import Any


def either(*names: str) -> Any:
    """What the first of these names that a release has stands for.

    Args:
        *names: such as "package.module" or "package.module:Class".

    Raises:
        ImportError: it has none of them.
    """
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        if not attribute:
            return found
        if hasattr(found, attribute):
            return getattr(found, attribute)
    raise ImportError(f"no {' or '.join(names)}", name=names[0].partition(":")[0])


# The names of Keras 3.16 come first: `Trainer` is what 3.15 calls another class.
BaseTrainer = either("keras.src.trainers.trainer:BaseTrainer", "keras.src.trainers.trainer:Trainer")
TensorFlowTrainer = either(
    "keras.src.backend.tensorflow.trainer:TensorFlowTrainer",
    "keras.src.backend.tensorflow.trainer:Trainer",
)
tensorflow_core = either(
    "keras.src.backend.tensorflow.ops.core", "keras.src.backend.tensorflow.core"
)

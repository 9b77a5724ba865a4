"""Private names of Keras that differ between releases."""

import importlib
from typing import Any


def either(*names: str) -> Any:
    """Returns the object of the first of these names that exists in this release.

    Names are like "package.module" or "package.module:Class".
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


# The names of Keras 3.16 come first: in 3.15, `Trainer` is the name of another class.
BaseTrainer = either("keras.src.trainers.trainer:BaseTrainer", "keras.src.trainers.trainer:Trainer")
TensorFlowTrainer = either(
    "keras.src.backend.tensorflow.trainer:TensorFlowTrainer",
    "keras.src.backend.tensorflow.trainer:Trainer",
)
# Where optimizers find `cond`.
backend_ops = either("keras.src.backend.tensorflow.ops", "keras.src.backend.tensorflow.core")

"""Networks: `build(name, ...)` creates one, `available()` lists their names."""

from terngrad_tf.models.registry import (
    available,
    build,
    input_shape,
    label_smoothing,
    output_loss_weights,
    preprocessing,
)

__all__ = [
    "available",
    "build",
    "input_shape",
    "label_smoothing",
    "output_loss_weights",
    "preprocessing",
]

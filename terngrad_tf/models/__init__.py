"""Networks: `build(name, ...)` makes one, `available()` names them."""

from terngrad_tf.models.registry import available, build, input_shape

__all__ = ["available", "build", "input_shape"]

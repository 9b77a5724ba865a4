"""`Checkpoint`, the callback that saves `model.fit` on one or many machines."""

from terngrad_tf.checkpoints.checkpoint import Checkpoint

__all__ = ["Checkpoint"]

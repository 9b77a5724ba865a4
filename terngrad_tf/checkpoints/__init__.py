"""Checkpoints of `model.fit`, on one machine or many: the callback `Checkpoint`."""

from terngrad_tf.checkpoints.checkpoint import Checkpoint

__all__ = ["Checkpoint"]

"""Selection of the changes that an exchange of local steps sends."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import private


class WholeChanges:
    """Lets exchanges take changes whole, with elements of many sizes."""

    are_of_one_size = False

    def take(
        self, positions: Sequence[int], changes: list[list[tf.Tensor]], step: tf.Tensor
    ) -> list[list[tf.Tensor]]:
        """The changes as they are; see `ErrorFeedback.take`."""
        return changes


class ErrorFeedback:
    """Lets exchanges take the largest elements of changes, and adds the rest to later ones.

    Replica k keeps remainders `e_k`, 0 at first. Of a change `c_k`, `y_k` is exchanged:

        d_k = e_k + c_k
        y_k = the largest elements of all d_k, in each weight with their mean size, 0 elsewhere
        e_k = d_k - y_k

    The codes of `y_k` take `bits_per_element`. The replicas' mean sizes are rounded to the largest
    without bias. Float changes, and all in float steps, are exchanged whole.

    Args:
        op: `TernaryAllReduce`.
        devices: devices of the local replicas.
        paths: paths of the optimizer's variables.
        left: remainders, distributed variables with a copy for each replica.

    Source: Sattler et al., Robust and communication-efficient federated learning from non-IID data,
    IEEE TNNLS 2020 (arXiv 1903.02891); Sarfi et al., Communication efficient LLM pre-training with
    SparseLoCo, 2025 (arXiv 2508.15706).
    """

    are_of_one_size = True

    def __init__(
        self, op: Any, devices: Sequence[str], paths: Sequence[str], left: Sequence[Any]
    ) -> None:
        self._op = op
        self._devices = devices
        self._left = left
        self._rounded = set(op.quantization.ternary_positions(left, paths))
        self._share = op.quantization.largest_nonzero_share

    def take(
        self, positions: Sequence[int], changes: Sequence[Sequence[tf.Tensor]], step: tf.Tensor
    ) -> list[list[tf.Tensor]]:
        """Selects what is exchanged, and keeps the rest; in cross-replica context.

        Args:
            positions: positions of T weights in the optimizer's list.
            changes: T lists with a tensor for each local replica; so is the result.
            step: the optimizer's step, an int64 scalar tensor.
        """
        taken = [list(of_replicas) for of_replicas in changes]
        rounded = [i for i, position in enumerate(positions) if position in self._rounded]
        is_float = self._op.is_float_step(step)
        for replica, device in enumerate(self._devices):
            with tf.device(device):
                left = [private.local_tensors(self._left[positions[i]])[replica] for i in rounded]
                due = [own + taken[i][replica] for own, i in zip(left, rounded, strict=True)]
                parts = ternary.largest_as_codes(due, self._share)
                if is_float is not None:
                    pairs = zip(due, parts, strict=True)
                    parts = [tf.where(is_float, whole, part) for whole, part in pairs]
                for i, own, whole, part in zip(rounded, left, due, parts, strict=True):
                    own.assign(whole - part)
                    taken[i][replica] = part
        return taken

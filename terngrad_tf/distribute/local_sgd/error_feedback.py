"""What exchanges of local steps leave of changes, for the next ones."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import private


class ErrorFeedback:
    """Lets exchanges take the largest part of what replicas changed, and keeps the rest for later.

    Of each weight a replica k has what was left over, `e_k`, 0 at first. To a change `c_k` it is
    added, and what travels is taken off again:

        d_k = e_k + c_k
        y_k = the largest elements of all d_k, in each weight with their mean size, 0 elsewhere
        e_k = d_k - y_k

    So many are taken that the stream of their codes takes `bits_per_element`. So nothing is lost,
    but part of it comes late; a larger scale would add more variance than the changes of many steps
    bear. Replicas' sizes differ a little, and are rounded to the largest of them without bias.
    Weights whose changes travel as floats travel whole, and so do all in float steps.

    Args:
        op: `TernaryAllReduce` by which changes are exchanged.
        devices: of the local replicas.
        paths: of all variables of the optimizer that they are exchanged for.
        left: list of distributed variables, like those of the optimizer, with a copy for each
            replica.

    Source: Sattler et al., Robust and communication-efficient federated learning from non-IID data,
    IEEE TNNLS 2020 (arXiv 1903.02891); Sarfi et al., Communication efficient LLM pre-training with
    SparseLoCo, 2025 (arXiv 2508.15706).
    """

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
        """What travels of changes, in cross-replica context; keeps the rest.

        Args:
            positions: of T weights among those of the optimizer.
            changes: T lists with a tensor for each local replica.
            step: the optimizer's step, an int64 scalar tensor.

        Returns:
            As `changes`.
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

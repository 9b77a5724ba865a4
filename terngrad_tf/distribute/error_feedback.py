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
        y_k = the largest elements of d_k, with their mean size, and 0 in place of the others
        e_k = d_k - y_k

    So many are taken that the stream of their codes takes `bits_per_element`. So nothing is lost,
    but part of it comes late; a larger scale would add more variance than the changes of many steps
    bear. Replicas' sizes differ a little, and are rounded to the largest of them without bias.
    Weights whose changes travel as floats travel whole, and so do all in float steps.

    Args:
        op: `TernaryAllReduce` by which changes are exchanged.
        paths: of all variables of the optimizer that they are exchanged for.
        left: list of distributed variables, like those of the optimizer, with a copy for each
            replica.

    Source: Sattler et al., Robust and communication-efficient federated learning from non-IID data,
    IEEE TNNLS 2020 (arXiv 1903.02891); Sarfi et al., Communication efficient LLM pre-training with
    SparseLoCo, 2025 (arXiv 2508.15706).
    """

    def __init__(self, op: Any, paths: Sequence[str], left: Sequence[Any]) -> None:
        self._op = op
        self._left = left
        self._rounded = set(op.quantization.ternary_positions(left, paths))

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
        share = self._op.quantization.largest_nonzero_share
        is_float = self._op.is_float_step(step)
        taken = []
        for position, of_replicas in zip(positions, changes, strict=True):
            if position not in self._rounded:
                taken.append(list(of_replicas))
                continue
            taken.append([])
            components = private.local_tensors(self._left[position], len(of_replicas))
            for left, change in zip(components, of_replicas, strict=True):
                with tf.device(left.device):
                    due = left + change
                    part = ternary.largest_as_codes(due, share)
                    if is_float is not None:
                        part = tf.where(is_float, due, part)
                    left.assign(due - part)
                    taken[-1].append(part)
        return taken

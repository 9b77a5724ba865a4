"""Weights in groups that are exchanged in turn: which weights, and when."""

import dataclasses
import heapq
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.arguments import check, is_integer


def divide(sizes: Sequence[int], num_groups: int) -> list[list[int]]:
    """Divides tensors into groups of about as many elements.

    From the largest to the smallest, each goes to the group that has least so far, so that the
    largest group is at most a third larger than the best division makes it. The same sizes are
    divided in the same way everywhere.

    Example:
    >>> divide([6, 1, 4, 3], 2)
    [[0, 1], [2, 3]]

    Args:
        sizes: elements of each tensor.
        num_groups: number of groups.

    Returns:
        List of lists of positions in `sizes`, none of them empty, each position once.

    Raises:
        ValueError: there are fewer tensors than groups.

    Source: Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17, 1969.
    """
    rule = f"must be at most the number of weights, {len(sizes)}"
    check(num_groups <= len(sizes), "fragments", rule, num_groups)
    # Empty tensors count, too, or groups of nothing else would stay empty.
    groups: list[Any] = [(0, number, []) for number in range(num_groups)]
    for position in sorted(range(len(sizes)), key=lambda position: -sizes[position]):
        total, number, members = heapq.heappop(groups)
        heapq.heappush(groups, (total + max(1, sizes[position]), number, [*members, position]))
    return [sorted(members) for _, _, members in sorted(groups, key=lambda group: group[1])]


@dataclasses.dataclass(frozen=True)
class Turns:
    """When each of the groups is exchanged: one every `sync_every / fragments` steps, in turn.

    Steps are counted from where all groups were exchanged together; with one group that is in every
    exchange.

    Attributes:
        sync_every: steps from an exchange of a group to its next.
        fragments: number of groups.
        overlap: steps from an exchange's start to its end, which is in time for the next start.

    Raises:
        ValueError: an attribute is out of range.
    """

    sync_every: int
    fragments: int
    overlap: int = 0

    def __post_init__(self) -> None:
        for name in ("sync_every", "fragments"):
            value = getattr(self, name)
            check(is_integer(value, 1), name, "must be a positive integer", value)
        rule = f"must divide `sync_every`, {self.sync_every}"
        check(self.sync_every % self.fragments == 0, "fragments", rule, self.fragments)
        rule = f"must be an integer from 0 to the {self.interval} steps between two exchanges"
        fits = is_integer(self.overlap, 0) and self.overlap <= self.interval
        check(fits, "overlap", rule, self.overlap)

    @property
    def interval(self) -> int:
        """Steps from an exchange to the next, which is another group's."""
        return self.sync_every // self.fragments

    def group_after(self, steps: Any) -> Any:
        """The group whose exchange starts after so many steps, or `fragments` if none does.

        Args:
            steps: integer scalar tensor.

        Returns:
            int32 scalar tensor.
        """
        turn = steps // self.interval
        is_due = (steps > 0) & tf.equal(steps % self.interval, 0)
        group = tf.where(is_due, (turn - 1) % self.fragments, self.fragments)
        return tf.cast(group, tf.int32)

    def arrived_after(self, steps: Any) -> Any:
        """The group whose exchange ends after so many steps; otherwise as `group_after`."""
        return self.group_after(steps - self.overlap)

    def under_way_after(self, steps: int) -> int | None:
        """The group whose exchange has started, in so many steps, and not ended; None if none."""
        turn, rest = divmod(steps, self.interval)
        return (turn - 1) % self.fragments if turn and rest < self.overlap else None

    def changed_after(self, steps: int) -> list[int]:
        """The groups whose own weights changed, in so many steps, since they were exchanged."""
        turn, rest = divmod(steps, self.interval)
        is_exchanged = turn and not rest and not self.overlap
        just_exchanged = (turn - 1) % self.fragments if is_exchanged else None
        return [group for group in range(self.fragments) if steps and group != just_exchanged]

"""Groups of weights that are exchanged in turn: their weights and their turns."""

import dataclasses
import heapq
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.common.arguments import check, is_integer


def divide(sizes: Sequence[int], num_groups: int) -> list[list[int]]:
    """Divides tensors into groups of positions, with about the same number of elements.

    Tensors, largest first, go to the group with the fewest elements. The largest group is at most a
    third larger than in the best division. No group is empty.

    Example:
    >>> divide([6, 1, 4, 3], 2)
    [[0, 1], [2, 3]]

    Raises:
        ValueError: there are fewer tensors than groups.

    Source: Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17, 1969.
    """
    rule = f"must be at most the number of weights, {len(sizes)}"
    check(num_groups <= len(sizes), "fragments", rule, num_groups)
    # No group stays empty, even of empty tensors.
    groups: list[Any] = [(0, number, []) for number in range(num_groups)]
    for position in sorted(range(len(sizes)), key=lambda position: -sizes[position]):
        total, number, members = heapq.heappop(groups)
        heapq.heappush(groups, (total + max(1, sizes[position]), number, [*members, position]))
    return [sorted(members) for _, _, members in sorted(groups, key=lambda group: group[1])]


@dataclasses.dataclass(frozen=True)
class Turns:
    """Schedule of exchanges: one group every `sync_every / fragments` steps, in turn.

    Steps are counted from the last exchange of all groups together.

    Attributes:
        sync_every: steps from one exchange of a group to its next.
        fragments: number of groups.
        overlap: steps from an exchange's start to its end, before the next start.
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
        """Steps from one exchange to the next, of another group."""
        return self.sync_every // self.fragments

    @property
    def are_of_all(self) -> bool:
        """True if every exchange is of all weights and ends in the step in which it starts."""
        return self.fragments == 1 and not self.overlap

    def group_after(self, steps: Any) -> Any:
        """Group whose exchange starts after `steps` steps, int32; `fragments` if none does."""
        turn = steps // self.interval
        is_due = (steps > 0) & tf.equal(steps % self.interval, 0)
        group = tf.where(is_due, (turn - 1) % self.fragments, self.fragments)
        return tf.cast(group, tf.int32)

    def arrived_after(self, steps: Any) -> Any:
        """Group whose exchange ends after `steps` steps; otherwise as `group_after`."""
        return self.group_after(steps - self.overlap)

    def is_end_after(self, steps: Any) -> Any:
        """True if an exchange ends after `steps` steps; a bool tensor."""
        return tf.equal((steps - self.overlap) % self.interval, 0)

    def is_renewed_after(self, steps: Any, group: int) -> Any:
        """True if replicas take a group's shared values, because the last step exchanged it.

        With `overlap`, only after early exchanges: others mix the values.
        """
        is_first = tf.equal(steps, 0)
        if self.overlap:
            return is_first
        return is_first | tf.equal(self.group_after(steps), group)

    def under_way_after(self, steps: int) -> int | None:
        """Group whose exchange is under way after `steps` steps, or None."""
        turn, rest = divmod(steps, self.interval)
        return (turn - 1) % self.fragments if turn and rest < self.overlap else None

    def changed_after(self, steps: int) -> list[int]:
        """Groups that changed in the `steps` steps after they were exchanged."""
        turn, rest = divmod(steps, self.interval)
        is_exchanged = turn and not rest and not self.overlap
        just_exchanged = (turn - 1) % self.fragments if is_exchanged else None
        return [group for group in range(self.fragments) if steps and group != just_exchanged]

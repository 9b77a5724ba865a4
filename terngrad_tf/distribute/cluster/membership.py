"""Members of a cluster: the rules of their choice, and the file that records them.

A generation begins with members that agreed to it, and ends when a member is lost or another worker
comes. The next one needs more than half of the members (or half, including the chief): of the last
generation that all members joined, and of each later one to which some worker agreed, since it may
have begun elsewhere. So at most one part of a split network continues: two such groups share a
worker, which agrees to a generation only once.

The saved state of a later generation wins: the run did not continue from the other one.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from terngrad_tf.common import strict_json
from terngrad_tf.common.files import PathLike, atomic_write, sync

_FILE = ".members-{}.json"
_FILES = ".members-*.json"
# More than any cluster's workers or steps.
_MOST = 10**9


@dataclasses.dataclass(frozen=True, order=True)
class SavedState:
    """A state of the run that a worker can provide.

    Attributes:
        generation: generation that saved the state, from 1; 0 if unknown.
        step: number of steps done.
    """

    generation: int
    step: int


@dataclasses.dataclass(frozen=True)
class Generation:
    """Workers that agreed to train together.

    Attributes:
        number: number of the generation, from 1; 0 before the first.
        members: indices in the whole cluster's list, the chief first.
        num_copies: number of members after the chief that save, too.
        start: state at the beginning, or None.
    """

    number: int
    members: tuple[int, ...]
    num_copies: int = 0
    start: SavedState | None = None

    def may_continue(self, present: Collection[int]) -> bool:
        """Returns True if these workers may begin the next generation."""
        num_present = len(set(self.members).intersection(present))
        is_half = 2 * num_present == len(self.members) and self.members[0] in present
        return 2 * num_present > len(self.members) or is_half

    def order(self, states: Mapping[int, SavedState | None]) -> tuple[int, ...] | None:
        """Returns the next generation's members; the worker with the newest state is its chief.

        The chief comes first. None: no present worker surely has the last saved state.
        """
        saving = self.members[: 1 + self.num_copies]
        newest = max((state for state in states.values() if state is not None), default=None)
        has_it = newest is not None and (
            newest.generation == self.number or (self.start is not None and newest >= self.start)
        )
        before = self.members[0]
        has_nothing = self.start is None and not set(saving).isdisjoint(states)
        if before not in states and not has_it and not has_nothing:
            return None
        best = [index for index, state in sorted(states.items()) if state == newest]
        chief = before if before in best else best[0]
        return (chief, *(index for index in sorted(states) if index != chief))


def deciding(begun: Iterable[Generation], agreed: Iterable[Generation]) -> list[Generation]:
    """Returns the generations of which enough workers must be present, the latest last.

    Args:
        begun: the last generation that all its members joined, as each present worker knows.
        agreed: the last one to which each of them agreed.
    """
    last = max(begun, key=_age)
    later = {generation for generation in agreed if generation.number > last.number}
    return [last, *sorted(later, key=_age)]


def _age(generation):
    return generation.number, generation.members


@dataclasses.dataclass(frozen=True)
class _Record:
    """The content of a worker's file; see `MembersFile`."""

    workers: list[str]
    generation: Generation
    begun: Generation
    saved: SavedState | None


class MembersFile:
    """A worker's record in the folder of its run. Workers may share the folder.

    Agreements with another list of workers no longer count; states saved there do.

    Raises:
        ValueError: the file is damaged.
        OSError: the file cannot be read.
    """

    def __init__(self, folder: PathLike, index: int, workers: Sequence[str]):
        # Training may change the working folder.
        self.folder = pathlib.Path(folder).absolute()
        self._path = self.folder / _FILE.format(index)
        self._workers = list(workers)
        self.generation = self.begun = Generation(0, tuple(range(len(workers))))
        self._saved = None
        if record := _read(self._path):
            self._saved = record.saved
            if record.workers == self._workers:
                self.generation, self.begun = record.generation, record.begun

    def agree(self, generation: Generation, begun: Generation | None = None) -> None:
        """Records a generation, permanently; raises OSError on failure.

        Args:
            begun: the last generation before it that all members joined, as far as those who agree
                know. This worker may have stopped before it knew.
        """
        self.generation = generation
        self.begun = max(self.begun, begun or self.begun, key=_age)
        self._write()

    def begin(self) -> None:
        """Records that all members joined the generation; raises OSError on failure."""
        self.begun = self.generation
        self._write()

    def saved(self, step: int) -> None:
        """Records a state saved in this generation; raises OSError on failure."""
        self._saved = SavedState(self.generation.number, step)
        self._write()

    def state(self, newest_step: int | None) -> SavedState | None:
        """Returns the state in the folder, or None; raises as the constructor.

        `newest_step` is the newest checkpoint's, None without one.
        """
        if newest_step is None:
            return None
        records = filter(None, map(_read, self._path.parent.glob(_FILES)))
        numbers = (_saved_by(newest_step, one.generation, one.saved) for one in records)
        return SavedState(max(numbers, default=0), newest_step)

    def _write(self):
        self._path.parent.mkdir(parents=True, exist_ok=True)
        record = _Record(self._workers, self.generation, self.begun, self._saved)
        with atomic_write(self._path) as beside, open(beside, "w", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(record)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        sync(self._path.parent)


def _saved_by(step, last, saved):
    """Returns the number of the generation that saved a folder's newest state, 0 if unknown.

    Args:
        step: that of the state.
        last: generation to which a worker agreed last.
        saved: state that this worker recorded last, or None.
    """
    if saved is None:
        return 0
    # The record may be older than the last saved state.
    if saved.step <= step:
        return saved.generation
    # Later states are damaged or lost. A generation leaves none that others saved after its start.
    if saved.generation != last.number or (last.start is not None and step < last.start.step):
        return 0
    is_start = last.start is not None and step == last.start.step
    return last.start.generation if is_start else last.number


def _read(path):
    """Returns the record in a file; None without the file."""
    try:
        described = strict_json.read_json(path)
        workers, generation = described["workers"], generation_from(described["generation"])
        begun = generation_from(described.get("begun", described["generation"]))
        largest = max(generation.members + begun.members)
        if largest >= len(workers):
            raise ValueError(f"it tells of worker {largest} of {len(workers)}")
        return _Record(workers, generation, begun, state_from(described["saved"]))
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def generation_from(described: Any) -> Generation:
    """Returns the `Generation` of a dict from `dataclasses.asdict`, read from JSON.

    Raises KeyError, TypeError or ValueError for other values.
    """
    members = tuple(map(count, described["members"]))
    if not members or len(set(members)) < len(members):
        raise ValueError(f"its members are {list(members)}")
    number, num_copies = count(described["number"]), count(described["num_copies"])
    return Generation(number, members, num_copies, state_from(described["start"]))


def state_from(described: Any) -> SavedState | None:
    """Like `generation_from`, for a `SavedState` or None."""
    if described is None:
        return None
    return SavedState(count(described["generation"]), count(described["step"]))


def count(value: Any) -> int:
    """Returns a value if it is a count; raises ValueError otherwise."""
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r} is no count")
    return value


def members_told(members: Sequence[int]) -> str:
    """Returns text such as "0, 2 and 3"."""
    *first, last = map(str, members)
    return f"{', '.join(first)} and {last}" if first else last

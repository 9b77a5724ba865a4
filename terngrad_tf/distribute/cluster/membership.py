"""Which workers of a cluster take part, and who may decide that: rules, and the file that keeps it.

A cluster has generations. Each begins with members that agreed on it, and ends where one is lost or
another comes. More than half of a generation's members are needed to begin the next (or half of
them, with the chief), so that of a network that is split one part goes on at most: any two such
groups share a worker, and a worker agrees to a generation once.

What a run has saved is known by the generation that saved it and by its step. Of two states the one
of the later generation counts: the run did not go on from the other.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from terngrad_tf import strict_json
from terngrad_tf.files import PathLike, atomic_write

_FILE = ".members-{}.json"
_FILES = ".members-*.json"
# More workers than any cluster has, and more steps.
_MOST = 10**9


@dataclasses.dataclass(frozen=True, order=True)
class SavedState:
    """What a worker can bring of the run.

    Attributes:
        generation: that in which it was saved, from 1; 0 for one of which that is not known.
        step: steps done.
    """

    generation: int
    step: int


@dataclasses.dataclass(frozen=True)
class Generation:
    """Who agreed to train together.

    Attributes:
        number: from 1; 0 before the first.
        members: indices of the workers in the whole cluster's list, the chief first.
        num_copies: members after the chief that save as it does.
        start: the `SavedState` with which it began; None where it began with none.
    """

    number: int
    members: tuple[int, ...]
    num_copies: int = 0
    start: SavedState | None = None

    def may_continue(self, present: Collection[int]) -> bool:
        """Whether these workers may begin the next generation."""
        num_present = len(set(self.members).intersection(present))
        is_half = 2 * num_present == len(self.members) and self.members[0] in present
        return 2 * num_present > len(self.members) or is_half

    def order(self, states: Mapping[int, SavedState | None]) -> tuple[int, ...] | None:
        """The members of the next generation: who brings most of the run is its chief.

        Args:
            states: what each worker that is present can bring.

        Returns:
            Indices of the workers, the chief first; None where none of them is known to have what
            the run saved last.
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


class MembersFile:
    """What a worker remembers in the folder of its run, which it may share with others.

    Args:
        folder: path.
        index: this worker's place in the whole cluster's list.
        workers: the list, addresses of all workers. What was agreed to in a cluster of others
            counts no more; what was saved there does.

    Raises:
        ValueError: what is there is damaged.
        OSError: it cannot be read.
    """

    def __init__(self, folder: PathLike, index: int, workers: Sequence[str]):
        self._path = pathlib.Path(folder) / _FILE.format(index)
        self._workers = list(workers)
        self.generation = Generation(0, tuple(range(len(workers))))
        self._saved = None
        if read := _read(self._path):
            of_workers, generation, self._saved = read
            if of_workers == self._workers:
                self.generation = generation

    def agree(self, generation: Generation) -> None:
        """Remembers a generation, for good once this returns.

        Raises:
            OSError: the file cannot be written.
        """
        self.generation = generation
        self._write()

    def saved(self, step: int) -> None:
        """Remembers what was saved in the folder in this generation; errors as for `agree`."""
        self._saved = SavedState(self.generation.number, step)
        self._write()

    def state(self, newest_step: int | None) -> SavedState | None:
        """What the folder holds.

        Args:
            newest_step: step of the newest checkpoint in it; None where there is none.

        Raises:
            ValueError: the file of another worker in the folder is damaged.
            OSError: it cannot be read.
        """
        if newest_step is None:
            return None
        numbers = [0]
        for path in self._path.parent.glob(_FILES):
            _, _, saved = _read(path) or (None, None, None)
            # What is told may be older than what was saved last, and never newer.
            if saved is not None and saved.step <= newest_step:
                numbers.append(saved.generation)
        return SavedState(max(numbers), newest_step)

    def _write(self):
        self._path.parent.mkdir(parents=True, exist_ok=True)
        described = {
            "workers": self._workers,
            "generation": dataclasses.asdict(self.generation),
            "saved": self._saved and dataclasses.asdict(self._saved),
        }
        with atomic_write(self._path) as beside, open(beside, "w", encoding="utf-8") as file:
            file.write(json.dumps(described) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _read(path):
    """(Workers, `Generation`, `SavedState` or None) of a file; None where there is none."""
    try:
        described = strict_json.read_json(path)
        workers, generation = described["workers"], generation_from(described["generation"])
        if max(generation.members) >= len(workers):
            raise ValueError(f"it tells of worker {max(generation.members)} of {len(workers)}")
        return workers, generation, state_from(described["saved"])
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def generation_from(described: Any) -> Generation:
    """The `Generation` whose dict, as of `dataclasses.asdict`, JSON held.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    members = tuple(map(count, described["members"]))
    if not members or len(set(members)) < len(members):
        raise ValueError(f"its members are {list(members)}")
    number, num_copies = count(described["number"]), count(described["num_copies"])
    return Generation(number, members, num_copies, state_from(described["start"]))


def state_from(described: Any) -> SavedState | None:
    """As `generation_from`, of a `SavedState` or None."""
    if described is None:
        return None
    return SavedState(count(described["generation"]), count(described["step"]))


def count(value: Any) -> int:
    """A value found to be a count.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(f"{value!r} is no count")
    return value


def members_told(members: Sequence[int]) -> str:
    """Such as "0, 2 and 3"."""
    *first, last = map(str, members)
    return f"{', '.join(first)} and {last}" if first else last

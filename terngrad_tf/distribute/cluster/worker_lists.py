"""The list of workers that each process was started with, told by its name, and how two differ.

A name says the process's place in its list, and the list: "worker 0 of 2 in a:2222,b:2222". Where
that is too long for a greeting, a digest stands for the list.
"""

import dataclasses
import hashlib
import re
from collections.abc import Sequence

from terngrad_tf.arguments import shown
from terngrad_tf.distribute.communication.peers import Tasks

# Of a list that is told whole; a greeting must also hold a name, a number and a seal.
_MOST_CHARACTERS = 3000
_DIGEST = "sha256:"
_NAME = re.compile(r"([a-z]{1,20} [0-9]{1,9}) of ([0-9]{1,9}) in (\S+)")
# Differences that one line tells.
_MOST_TOLD = 2
_RULE = "all processes need the same list of workers"


@dataclasses.dataclass(frozen=True)
class Place:
    """What a process says of itself.

    Attributes:
        name: such as "worker 1".
        count: workers in its list.
        workers: the list, addresses joined by commas, or its digest.
    """

    name: str
    count: int
    workers: str

    def __str__(self) -> str:
        return f"{self.name} of {self.count} in {self.workers}"


def place_of(tasks: Tasks, index: int) -> Place:
    """The `Place` of a process as this one knows it, from the index in its own list."""
    workers = ",".join(tasks.addresses)
    if len(workers) > _MOST_CHARACTERS:
        workers = _DIGEST + hashlib.sha256(workers.encode()).hexdigest()
    return Place(tasks.names[index], len(tasks.names), workers)


def parse(name: str) -> Place | None:
    """The `Place` that a name tells; None for any other text, whoever sent it."""
    match = _NAME.fullmatch(name)
    return match and Place(match[1], int(match[2]), match[3])


def difference(tasks: Tasks, who: str, told: Place) -> str:
    """One line on how another process was started differently.

    Args:
        tasks: `Tasks` of this process.
        who: the other, as an error calls it.
        told: what the other says.
    """
    own = place_of(tasks, tasks.index)
    if told.workers == own.workers:
        return (
            f'this process is {own.name} of {own.count}, but {who} says "{told.name} of'
            f' {told.count}": each process needs the index of its own address in the list of'
            " workers"
        )
    begin = f"the list of workers of {who} differs from that of this process, {own.name}"
    if _DIGEST in own.workers + told.workers:
        how = [f"it has {told.count} workers, this one {own.count}"] * (told.count != own.count)
    else:
        how = _differing(tasks, told.workers.split(","))
    more = [f"{len(how) - _MOST_TOLD} more"] * (len(how) > _MOST_TOLD)
    return f"{': '.join([begin, *how[:1]])}{_listed(how[1:_MOST_TOLD] + more)}; {_RULE}"


def _listed(phrases):
    return "".join(f", and {phrase}" for phrase in phrases)


def _differing(tasks: Tasks, told: Sequence[str]):
    """Phrases, one for each place in which two lists differ."""
    own = tasks.addresses
    if len(own) == len(told):
        return [
            f"{name} is {shown(other)} there and {shown(address)} here"
            for name, address, other in zip(tasks.names, own, told, strict=True)
            if address != other
        ]
    here, there = ([a for a in one if a not in other] for one, other in ((own, told), (told, own)))
    return [
        f"{len(told)} workers there and {len(own)} here",
        *(f"{shown(address)} is here alone" for address in here),
        *(f"{shown(address)} is there alone" for address in there),
    ]

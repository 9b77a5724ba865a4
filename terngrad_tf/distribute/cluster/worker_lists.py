"""Compares the lists of workers with which processes were started.

A process sends its index and list as a name: "worker 0 of 2 in a:2222,b:2222"; a digest replaces a
list too long for a greeting.
"""

import dataclasses
import hashlib
import re

from terngrad_tf.common.arguments import shown
from terngrad_tf.distribute.communication.peers import Tasks

# A greeting must also hold a name, a number and a seal.
_MOST_CHARACTERS = 3000
_DIGEST = "sha256:"
_NAME = re.compile(r"([a-z]{1,20} [0-9]{1,9}) of ([0-9]{1,9}) in (\S+)")
_MOST_TOLD = 2
_RULE = "all processes need the same list of workers"


@dataclasses.dataclass(frozen=True)
class Place:
    """A process's name, such as "worker 1", its number of workers, and their list or a digest."""

    name: str
    count: int
    workers: str

    def __str__(self) -> str:
        return f"{self.name} of {self.count} in {self.workers}"


def place_of(tasks: Tasks, index: int) -> Place:
    """Returns the `Place` of an index in this process's list."""
    workers = ",".join(tasks.addresses)
    if len(workers) > _MOST_CHARACTERS:
        workers = _DIGEST + hashlib.sha256(workers.encode()).hexdigest()
    return Place(tasks.names[index], len(tasks.names), workers)


def parse(name: str) -> Place | None:
    """Returns the `Place` described by a name; None for other text of any sender."""
    match = _NAME.fullmatch(name)
    return match and Place(match[1], int(match[2]), match[3])


def difference(tasks: Tasks, who: str, told: Place) -> str:
    """Returns one line on how another process, `who`, was started differently."""
    own = place_of(tasks, tasks.index)
    if told.workers == own.workers:
        return (
            f'this process is {own.name} of {own.count}, but {who} says "{told.name} of'
            f' {told.count}": each process needs the index of its own address in the list of'
            " workers"
        )
    line = f"the list of workers of {who} differs from that of this process, {own.name}"
    if how := _differences(tasks, own, told):
        phrases = how[:_MOST_TOLD]
        if len(how) > _MOST_TOLD:
            phrases.append(f"{len(how) - _MOST_TOLD} more")
        line += f": {', and '.join(phrases)}"
    return f"{line}; {_RULE}"


def _differences(tasks, own_place, told_place):
    """Returns phrases on the differences between two lists; none if they are not known."""
    if _DIGEST in own_place.workers + told_place.workers:
        if told_place.count == own_place.count:
            return []
        return [f"it has {told_place.count} workers, this one {own_place.count}"]
    own, told = tasks.addresses, told_place.workers.split(",")
    if len(own) == len(told):
        return [
            f"{name} is {shown(other)} there and {shown(address)} here"
            for name, address, other in zip(tasks.names, own, told, strict=True)
            if address != other
        ]
    return [
        f"{len(told)} workers there and {len(own)} here",
        *(f"{shown(address)} is here alone" for address in own if address not in told),
        *(f"{shown(address)} is there alone" for address in told if address not in own),
    ]

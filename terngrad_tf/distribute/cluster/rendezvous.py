"""Lets the processes of a cluster find each other before TensorFlow starts."""

import contextlib
import errno
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from terngrad_tf.distribute.cluster import greetings, introductions, refusals, worker_lists
from terngrad_tf.distribute.cluster.worker_lists import Place
from terngrad_tf.distribute.communication import peers
from terngrad_tf.distribute.communication.peers import Tasks

# A wrongly started process stays this long, so that the others notice.
_WRONG_SECONDS = 10.0

_joined = None


def wait_for_peers(
    tasks: Tasks, timeout: float, token: str | None = None, *, same_lists: bool = False
) -> None:
    """Waits until all processes have come to this point and reach each other.

    TensorFlow itself waits inside one call that ignores Ctrl-C; before 2.21, for an hour. It also
    accepts any program on a port as the expected process.

    Args:
        same_lists: True if other lists of workers mean another cluster. Otherwise hosts may have
            other names there.

    Raises:
        PeerError: processes are missing after `timeout` seconds, or were started with another index
            or list of processes; or this process cannot listen on its port.
    """
    look = _Look(tasks, token, time.monotonic() + timeout, same_lists)
    with answering(tasks, lambda: str(look.own), token) as heard:
        peers.wait_for_all(tasks, timeout, lambda _, among: look.missing(among, heard))
    global _joined
    _joined = tasks


def joined_tasks() -> Any:
    """Returns the `Tasks` of this process's cluster; None before the rendezvous."""
    return _joined


class _Look:
    """Looks for the processes that have not met this one.

    Args:
        deadline: end of the wait in `time.monotonic`.
        same_lists: see `wait_for_peers`.
    """

    def __init__(self, tasks: Tasks, token: str | None, deadline: float, same_lists: bool):
        self.own = worker_lists.place_of(tasks, tasks.index)
        self._tasks = tasks
        self._token = token
        self._deadline = deadline
        self._same_lists = same_lists
        self._refusals = refusals.Refusals(tasks, token)
        # Places of the right processes, by index.
        self._right: dict[int, Place] = {}
        # Differences of wrongly started processes, by name.
        self._wrong: dict[str, str] = {}
        self._wrong_since = None

    def missing(self, among: Iterable[int] | None, heard: greetings.Heard) -> dict[int, str]:
        """Returns why processes are missing, by index, as `peers.unreachable`.

        Raises:
            PeerError: a process was started differently, and had the time to see it, too.
        """
        tasks = self._tasks
        # Those that answered may have continued by now.
        asked = set(range(len(tasks.names)) if among is None else among) - self._right.keys()
        answers = peers.of_others(
            tasks,
            asked,
            lambda index: greetings.greet(tasks.addresses[index], str(self.own), self._token),
        )
        missing = {i: why for i, answer in answers.items() if (why := self._why(i, *answer))}
        places = [place for name in heard.names() if (place := worker_lists.parse(name))]
        for index in self._right:
            if not any(self._fits(index, place) for place in places):
                missing[index] = f"has not reached {tasks.describe(tasks.index)}"
        wrong = [*self._wrong.values(), *self._other_lists(missing, places)]
        now = time.monotonic()
        self._wrong_since = (self._wrong_since or now) if wrong else None
        if self._wrong_since and now > min(self._wrong_since + _WRONG_SECONDS, self._deadline):
            raise peers.PeerError(wrong[0])
        return missing

    def _why(self, index, name, failure):
        """Returns why a greeted process is missing, or None for the right process."""
        who, its_name = self._tasks.describe(index), self._tasks.names[index]
        if failure is not None:
            why = self._refusals.reason(index, failure)
            if self._refusals.are_final(failure):
                self._wrong[its_name] = f"{who} {why}"
            return why
        if introductions.is_introduction(name):
            return "still agrees on who takes part"
        told = worker_lists.parse(name)
        if told is None:
            return greetings.OTHER_PROGRAM
        if (told.name, told.count) != (its_name, self.own.count):
            self._wrong[its_name] = worker_lists.difference(self._tasks, who, told)
            return "was started differently"
        if not self._fits(index, told):
            return "is about to train with other workers"
        self._right[index] = told
        self._wrong.pop(its_name, None)
        return None

    def _fits(self, index, told):
        """Returns True if a process says that it has this index in this cluster."""
        is_place = (told.name, told.count) == (self._tasks.names[index], self.own.count)
        return is_place and (not self._same_lists or told.workers == self.own.workers)

    def _other_lists(self, missing, places):
        """Describes how the lists of missing processes differ from this one's, in their order.

        Lists may differ, such as by a host's names, if all processes meet.
        """
        if not missing:
            return []
        names = self._tasks.names
        absent = {names[index] for index in missing}
        told = [self._right[index] for index in missing if index in self._right]
        told += [place for place in places if place.name in absent or place.name not in names]
        order = {name: index for index, name in enumerate(names)}
        told.sort(key=lambda place: order.get(place.name, len(order)))
        return [
            worker_lists.difference(self._tasks, place.name, place)
            for place in told
            if place.workers != self.own.workers
        ]


@contextlib.contextmanager
def answering(
    tasks: Tasks, name: Callable[[], str], token: str | None = None
) -> Iterator[greetings.Heard]:
    """Like `greetings.answering`, on this process's own port; raises PeerError on failure."""
    port = int(tasks.addresses[tasks.index].rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        try:
            heard = stack.enter_context(greetings.answering(port, name, token))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise peers.PeerError(peers.port_in_use(tasks)) from None
            who = tasks.describe(tasks.index)
            raise peers.PeerError(f"{who} cannot listen on its port: {error.strerror}") from None
        yield heard

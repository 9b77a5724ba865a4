"""Lets the processes of a cluster find each other before TensorFlow starts."""

import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from typing import Any

from terngrad_tf.distribute.cluster import greetings, introductions, refusals, worker_lists
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
    own = str(worker_lists.place_of(tasks, tasks.index))
    with answering(tasks, lambda: own, token) as heard:
        look = _Look(heard, tasks, token, time.monotonic() + timeout, same_lists)
        peers.wait_for_all(tasks, timeout, look)
    global _joined
    _joined = tasks


def joined_tasks() -> Any:
    """Returns the `Tasks` of this process's cluster; None before the rendezvous."""
    return _joined


class _Look:
    """Returns processes that have not met this one, in the format of `peers.unreachable`.

    `deadline` is in `time.monotonic`.
    """

    def __init__(self, heard, tasks, token, deadline, same_lists=False):
        self._heard = heard
        self._refusals = refusals.Refusals(tasks, token)
        self._token = token
        self._deadline = deadline
        self._same_lists = same_lists
        self._right = {}
        # {name of a wrongly started process: the difference}.
        self._wrong = {}
        self._since = None

    def __call__(self, tasks, among):
        own = str(worker_lists.place_of(tasks, tasks.index))
        # Those that answered may have continued by now.
        asked = set(range(len(tasks.names)) if among is None else among) - self._right.keys()
        answers = peers.of_others(
            tasks, asked, lambda index: greetings.greet(tasks.addresses[index], own, self._token)
        )
        missing = {i: why for i, answer in answers.items() if (why := self._look(tasks, i, answer))}
        heard = [told for told in map(worker_lists.parse, self._heard.names()) if told is not None]
        for index in self._right:
            if not any(self._fits(tasks, index, other) for other in heard):
                missing[index] = f"has not reached {tasks.describe(tasks.index)}"
        wrong = [*self._wrong.values(), *self._other_lists(tasks, missing, heard)]
        now = time.monotonic()
        self._since = (self._since or now) if wrong else None
        if self._since and now > min(self._since + _WRONG_SECONDS, self._deadline):
            raise peers.PeerError(wrong[0])
        return missing

    def _look(self, tasks, index, answer):
        """Returns why a greeted process is missing, or None for the right process."""
        (name, failure), who = answer, tasks.describe(index)
        if failure is not None:
            why = self._refusals.reason(index, failure)
            if self._refusals.are_final(failure):
                self._wrong[tasks.names[index]] = f"{who} {why}"
            return why
        if introductions.is_introduction(name):
            return "still agrees on who takes part"
        told = worker_lists.parse(name)
        if told is None:
            return greetings.OTHER_PROGRAM
        if (told.name, told.count) != (tasks.names[index], len(tasks.names)):
            self._wrong[tasks.names[index]] = worker_lists.difference(tasks, who, told)
            return "was started differently"
        if not self._fits(tasks, index, told):
            return "is about to train with other workers"
        self._right[index] = told
        self._wrong.pop(tasks.names[index], None)
        return None

    def _fits(self, tasks, index, told):
        """Returns True if a process says that it has this index in this cluster."""
        place = worker_lists.place_of(tasks, index)
        is_place = (told.name, told.count) == (place.name, place.count)
        return is_place and (not self._same_lists or told.workers == place.workers)

    def _other_lists(self, tasks, missing, heard):
        """Describes how the lists of missing processes differ from this one's, in their order.

        Lists may differ, such as by a host's names, if all processes meet.
        """
        if not missing:
            return []
        own = worker_lists.place_of(tasks, tasks.index)
        absent = {tasks.names[index] for index in missing}
        told = [self._right[index] for index in missing if index in self._right]
        told += [place for place in heard if place.name in absent or place.name not in tasks.names]
        order = {name: index for index, name in enumerate(tasks.names)}
        told.sort(key=lambda place: order.get(place.name, len(order)))
        return [
            worker_lists.difference(tasks, place.name, place)
            for place in told
            if place.workers != own.workers
        ]


@contextlib.contextmanager
def answering(
    tasks: Tasks, name: Callable[[], str], token: str | None = None
) -> Iterator[greetings.Heard]:
    """Like `greetings.answering`, on this process's own port; raises PeerError on failure."""
    with contextlib.ExitStack() as stack:
        try:
            port = int(tasks.addresses[tasks.index].rpartition(":")[2])
            heard = stack.enter_context(greetings.answering(port, name, token))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise peers.PeerError(peers.port_in_use(tasks)) from None
            who = tasks.describe(tasks.index)
            raise peers.PeerError(f"{who} cannot listen on its port: {error.strerror}") from None
        yield heard

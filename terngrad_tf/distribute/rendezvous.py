"""The processes of a cluster find each other, before TensorFlow starts."""

import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from typing import Any

from terngrad_tf.distribute import greetings, introductions, peers
from terngrad_tf.distribute.peers import Tasks

# So long a process that was started wrongly stays, for the others to learn it.
_WRONG_SECONDS = 10.0

_joined = None


def wait_for_peers(tasks: Tasks, timeout: float, token: str | None = None) -> None:
    """Waits until all processes have come to this point and reach each other.

    TensorFlow itself waits inside one call, which Ctrl-C does not end; before 2.21, for an hour. It
    also takes whatever program answers on a port for the process that should.

    Args:
        tasks: `peers.Tasks`.
        timeout: seconds.
        token: what all must share. Default: none, which all must share, too.

    Raises:
        PeerError: some have not come after `timeout` seconds, or were started with another token,
            index or list of processes; or this process's port cannot be listened on.
    """
    own = _introduction(tasks, tasks.index)
    with answering(tasks, lambda: own, token) as heard:
        peers.wait_for_all(tasks, timeout, _Look(heard, token))
    global _joined
    _joined = tasks


def joined_tasks() -> Any:
    """`peers.Tasks` of this process's cluster, which it cannot leave; None before they have met."""
    return _joined


class _Look:
    """Says who has not met this process, as `peers.unreachable` says who cannot be reached.

    Args:
        heard: `greetings.Heard`, what other processes said that greeted this one.
        token: as for `wait_for_peers`.
    """

    def __init__(self, heard, token):
        self._heard = heard
        self._token = token
        self._answers = {}
        self._wrong = {}
        self._refused = {}
        self._since = None

    def __call__(self, tasks, among):
        own = _introduction(tasks, tasks.index)
        # Who has answered may be gone on by now.
        asked = set(range(len(tasks.names)) if among is None else among) - set(self._answers)
        answers = peers.of_others(
            tasks, asked, lambda index: greetings.greet(tasks.addresses[index], own, self._token)
        )
        missing = {index: failure for index, (_, failure) in answers.items() if failure}
        refused = {i: failure for i, failure in missing.items() if failure in greetings.REFUSALS}
        self._refused |= refused
        self._answers |= {index: name for index, (name, _) in answers.items() if name}
        for index, answer in list(self._answers.items()):
            if introductions.is_introduction(answer):
                missing[index] = "still agrees on who takes part"
                del self._answers[index]
                continue
            if answer != _introduction(tasks, index):
                self._wrong[index] = answer
            if answer not in self._heard.met:
                missing[index] = f"has not reached {tasks.describe(tasks.index)}"
        for index in self._refused:
            if _introduction(tasks, index) in self._heard.refused:
                missing.pop(index, None)  # it knows
        if self._wrong or self._refused:
            self._since = self._since or time.monotonic()
            if not missing or time.monotonic() > self._since + _WRONG_SECONDS:
                raise peers.PeerError(self._failure(tasks))
        return missing

    def _failure(self, tasks):
        if self._refused:
            who = " and ".join(f"{tasks.describe(i)} {why}" for i, why in self._refused.items())
            return f"{who}: all processes of a cluster need the same token"
        who = " and ".join(f'{tasks.describe(i)} says "{a}"' for i, a in self._wrong.items())
        return (
            f"this process is {_introduction(tasks, tasks.index)}, but {who}: all need one list of"
            " workers, and each the index of its own address in it"
        )


def _introduction(tasks, index):
    return f"{tasks.names[index]} of {len(tasks.names)}"


@contextlib.contextmanager
def answering(
    tasks: Tasks, name: Callable[[], str], token: str | None = None
) -> Iterator[greetings.Heard]:
    """As `greetings.answering`, on this process's own port.

    Args:
        tasks: `peers.Tasks`.
        name: function that returns the name of the moment.
        token: what all must share. Default: none.

    Raises:
        PeerError: the port cannot be listened on.
    """
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

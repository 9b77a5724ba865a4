"""The hosts of a cluster find each other, before TensorFlow starts."""

import contextlib
import errno
import time

from terngrad_tf.distribute import connections, peers

# So long a host that was started wrongly stays, for the others to learn it.
_WRONG_SECONDS = 10.0

_met = None


def meet(hosts, timeout):
    """Waits until all hosts have come to this point and reach each other.

    TensorFlow itself waits inside one call, which Ctrl-C does not end; before 2.21, for an hour. It
    also takes whatever program answers on a port for the host that should.

    Args:
        hosts: `peers.Hosts`.
        timeout: seconds.

    Raises:
        PeerError: some have not come after `timeout` seconds, or were started with another index or
            list of hosts; or this host's port cannot be listened on.
    """
    with _answering(hosts) as heard:
        peers.wait_for_all(hosts, timeout, _Look(heard))
    global _met
    _met = hosts


def hosts_met():
    """`peers.Hosts` of this process's cluster, which it cannot leave; None before they have met."""
    return _met


class _Look:
    """Says who has not met this host, as `peers.unreachable` says who cannot be reached.

    Args:
        heard: the set of what other hosts said that greeted this one.
    """

    def __init__(self, heard):
        self._heard = heard
        self._answers = {}
        self._wrong = {}
        self._since = None

    def __call__(self, hosts, among):
        own = _introduction(hosts, hosts.index)
        # Who has answered may be gone on by now.
        asked = set(range(len(hosts.names)) if among is None else among) - set(self._answers)
        answers = peers.of_others(
            hosts, asked, lambda index: connections.greet(hosts.addresses[index], own)
        )
        missing = {index: failure for index, (_, failure) in answers.items() if failure}
        self._answers |= {index: name for index, (name, _) in answers.items() if name}
        for index, answer in self._answers.items():
            if answer != _introduction(hosts, index):
                self._since = self._since or time.monotonic()
                self._wrong[index] = answer
            if answer not in self._heard:
                missing[index] = f"has not reached {hosts.describe(hosts.index)}"
        if self._wrong and (not missing or time.monotonic() > self._since + _WRONG_SECONDS):
            who = " and ".join(f'{hosts.describe(i)} says "{a}"' for i, a in self._wrong.items())
            raise peers.PeerError(
                f"this process is {own}, but {who}: all need one list of workers, and each the"
                " index of its own address in it"
            )
        return missing


def _introduction(hosts, index):
    return f"{hosts.names[index]} of {len(hosts.names)}"


@contextlib.contextmanager
def _answering(hosts):
    with contextlib.ExitStack() as stack:
        try:
            port = int(hosts.addresses[hosts.index].rpartition(":")[2])
            own = _introduction(hosts, hosts.index)
            heard = stack.enter_context(connections.answering(port, own))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise peers.PeerError(peers.port_in_use(hosts)) from None
            who = hosts.describe(hosts.index)
            raise peers.PeerError(f"{who} cannot listen on its port: {error.strerror}") from None
        yield heard

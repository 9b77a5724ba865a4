"""Errors of a cluster in one line that names the host at fault."""

import contextlib
import dataclasses
import ipaddress
import os
import re
import socket
import socketserver
import threading
import time

from terngrad_tf.distribute import private

_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")
# The op that failed, on the host that reports it.
_OWN_OP = re.compile(r"\{\{.*?\}\}")
_FROM_PEERS = re.compile(
    r"Collective ops is aborted|Collective has timed out|CoordinationService|WorkerService"
    r"|coordination service|Barrier timed out|Could not start gRPC server"
)
# What TensorFlow says where hosts run different programs.
_DIFFERENT = re.compile(
    r"[^\n]*(?:Shape mismatch in the collective|is joining a group with|expected (?:type|data_type)"
    r"|inconsistent with)[^\n]*"
)
# Around what a host reports to the others.
_MARK = "=~="
_REPORTED = re.compile(f"{_MARK}(.*?){_MARK}", re.DOTALL)
_LEADER = re.compile(r"CoordinationService|coordination service")
_PROBE_SECONDS = 2.0
_POLL_SECONDS = 0.5
# Nobody listens on the port of a host that answers: the process has ended, or not yet begun.
REFUSED = "connection refused"


class PeerError(RuntimeError):
    """A host of the cluster is gone, out of reach, or runs something else."""


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The processes of a cluster that take part in training, chief first.

    Attributes:
        names: name of each, such as "worker 1".
        addresses: host:port of each.
        index: this process's place in both.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    index: int

    def describe(self, index, why=""):
        """Such as "worker 1 (10.0.0.2:2222: connection refused)"."""
        return f"{self.names[index]} ({self.addresses[index]}{': ' + why if why else ''})"

    def describe_all(self, reasons):
        """The same for several, of `{index: why}`."""
        return ", ".join(self.describe(index, why) for index, why in sorted(reasons.items()))


def hosts_of(cluster_resolver):
    """`Hosts` of a `tf.distribute.cluster_resolver.ClusterResolver`."""
    jobs = cluster_resolver.cluster_spec().as_dict()
    tasks = [(job, i, a) for job in ("chief", "worker") for i, a in enumerate(jobs.get(job, ()))]
    own = (cluster_resolver.task_type, cluster_resolver.task_id)
    index = [task[:2] for task in tasks].index(own) if own in [t[:2] for t in tasks] else 0
    return Hosts(tuple(f"{job} {i}" for job, i, _ in tasks), tuple(a for *_, a in tasks), index)


@contextlib.contextmanager
def peer_errors(hosts):
    """Turns TensorFlow's errors about other hosts into `PeerError`, one line that names them.

    TensorFlow finds a killed process at its next exchange or, like a cut link, by missing
    heartbeats for 25 s. Other errors pass unchanged.

    Example:
    >>> with peer_errors(None):  # strategy.hosts
    ...     pass  # model.fit(...)

    Args:
        hosts: `TernGradStrategy.hosts`; None (no cluster) leaves all errors as they are.

    Raises:
        PeerError: where TensorFlow raised an error that comes from another host.
    """
    try:
        yield
    except PeerError:
        raise
    except Exception as error:  # Keras wraps TensorFlow's errors where it builds a model.
        message = str(error)
        if hosts is None or not _FROM_PEERS.search(message):
            raise
        line = explain(message, hosts, unreachable(hosts))
        private.report_error(f"{_MARK}{line} (found by {hosts.names[hosts.index]}){_MARK}")
        raise PeerError(line) from error


@contextlib.contextmanager
def told_to_peers(hosts):
    """Lets the other hosts end with what goes wrong inside, instead of with the loss of this host.

    Example:
    >>> with told_to_peers(None):  # strategy.hosts
    ...     pass  # read data, train

    Args:
        hosts: `TernGradStrategy.hosts`; None (no cluster) changes nothing.
    """
    try:
        yield
    except PeerError:
        raise  # they know
    except BaseException as error:
        if hosts is not None:
            private.report_error(f"{_MARK}{ended(hosts, error)}{_MARK}")
        raise


def ended(hosts, error):
    """One line for the others on why this host ends."""
    why = " ".join(str(error).split()) or type(error).__name__
    return f"{hosts.describe(hosts.index)} ended: {why}"


def explain(message, hosts, unreachable_now=None):
    """One line on what happened to which host.

    Args:
        message: TensorFlow's error.
        hosts: `Hosts`.
        unreachable_now: `{index: reason}` of the hosts that do not answer now. Default: none.
    """
    if reported := _REPORTED.search(message):
        return reported.group(1)
    if "Could not start gRPC server" in message:
        return (
            f"{hosts.describe(hosts.index)} cannot listen on its port: is it in use, perhaps by an"
            " earlier run that still ends?"
        )
    if different := _DIFFERENT.search(message):
        sentence = _OWN_OP.sub("", different.group()).strip()
        return f"the hosts run different programs. TensorFlow says: {sentence}"
    lost = dict(unreachable_now or {})
    for index in named(message, hosts):
        lost.setdefault(index, "")
    what = hosts.describe_all(lost)
    if "Barrier timed out" in message or "RegisterTask" in message:
        return not_started(hosts, lost)
    if "Collective has timed out" in message:
        return f"waited for the other hosts too long; out of reach: {what or 'none'}"
    return f"lost {what or 'another host, which one is not known'}"


def not_started(hosts, missing):
    """One line on hosts that did not come; `missing` is their `{index: reason}`."""
    return f"not all hosts started in time; missing: {hosts.describe_all(missing) or 'not known'}"


def unreachable(hosts):
    """`{index: reason}` of the other hosts whose port does not answer."""
    found = {}
    for index, address in enumerate(hosts.addresses):
        if index != hosts.index and (reason := connection_failure(address)):
            found[index] = reason
    return found


def wait_for_all(hosts, timeout):
    """Waits until the ports of all other hosts answer.

    Raises:
        PeerError: after `timeout` seconds some do not.
    """
    deadline = time.monotonic() + timeout
    while missing := unreachable(hosts):
        if time.monotonic() > deadline:
            raise PeerError(not_started(hosts, missing))
        time.sleep(_POLL_SECONDS)


def meet(hosts, timeout):
    """Waits as `wait_for_all`, and answers on this host's port meanwhile.

    For versions of TensorFlow that wait an hour for a host that does not come.
    """
    port = int(hosts.addresses[hosts.index].rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        # It is in use where this process is in a cluster already. Where another process has it,
        # TensorFlow says so.
        with contextlib.suppress(OSError):
            server = stack.enter_context(_Answerer(("", port), socketserver.BaseRequestHandler))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        wait_for_all(hosts, timeout)


class _Answerer(socketserver.TCPServer):
    allow_reuse_address = True


def connection_failure(address):
    """Why no TCP connection to "host:port" comes about within 2 s; None where one does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
    except OSError as error:
        return (error.strerror or str(error) or type(error).__name__).lower()
    return None


class Watch:
    """Looks whether other processes can be reached, and knows since when they cannot."""

    def __init__(self):
        self._lost_since = {}

    def look(self, address):
        """Tries to connect to "host:port".

        Returns:
            Pair of why no connection comes about and for how many seconds, from the first such look
            on; None and 0.0 where one does.
        """
        failure = connection_failure(address)
        if failure is None:
            self._lost_since.pop(address, None)
            return None, 0.0
        now = time.monotonic()
        return failure, now - self._lost_since.setdefault(address, now)


def hang_up(address):
    """Closes this process's TCP connections to "host:port", if any.

    Who waits for an answer on one then gets an error. Where a link is cut, gRPC would wait for as
    long as TCP tries, which is a quarter of an hour. Does nothing on systems without `/proc`.
    """
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        wanted = {_endpoint(sockaddr) for *_, sockaddr in found}
        for descriptor in os.listdir("/proc/self/fd"):
            # Some are closed by now or not connected.
            with contextlib.suppress(OSError):
                if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                    continue
                with socket.socket(fileno=os.dup(int(descriptor))) as connection:
                    if connection.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    if _endpoint(connection.getpeername()) in wanted:
                        connection.shutdown(socket.SHUT_RDWR)


def _endpoint(sockaddr):
    """Address and port of a socket, those of IPv4 alike whatever the socket's family."""
    address = ipaddress.ip_address(sockaddr[0].partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), sockaddr[1]


def named(message, hosts):
    """Indices of the hosts other than this one that a message of TensorFlow names."""
    tasks = [f"{job} {task}" for job, task in _TASK.findall(_OWN_OP.sub("", message))]
    # The coordination service runs in the first host.
    if not set(tasks) - {hosts.names[hosts.index]} and _LEADER.search(message):
        tasks.append(hosts.names[0])
    return {
        hosts.names.index(task)
        for task in tasks
        if task in hosts.names and task != hosts.names[hosts.index]
    }

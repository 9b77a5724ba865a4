"""TensorFlow's errors about other processes, in one line that names the process at fault."""

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping

from terngrad_tf.distribute.communication import peers, watchdog
from terngrad_tf.distribute.communication.peers import PeerError, Tasks

_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")
_OWN_OP = re.compile(r"\{\{.*?\}\}")
_FROM_PEERS = re.compile(
    r"Collective ops is aborted|Collective has timed out|CoordinationService|WorkerService"
    r"|coordination service|Barrier timed out|Could not start gRPC server"
)
# TensorFlow's messages if programs differ.
_DIFFERENT = re.compile(
    r"[^\n]*(?:Shape mismatch in the collective|is joining a group with|expected (?:type|data_type)"
    r"|inconsistent with)[^\n]*"
)
# TensorFlow's messages about a process that sent no heartbeats.
_SILENT = re.compile(r"heartbeat timeout|stopped sending heartbeats|already-in-error task")
_LEADER = re.compile(r"CoordinationService|coordination service")

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def peer_errors(tasks: Tasks | None) -> Iterator[None]:
    """Turns TensorFlow's errors about other processes into `PeerError`, one line that names them.

    TensorFlow notices a killed process at the next exchange, or `watchdog` does after some seconds;
    a cut link is noticed by missing heartbeats for 25 s. Other errors pass unchanged.

    Example:
    >>> with peer_errors(None):  # strategy.tasks
    ...     pass  # model.fit(...)

    Args:
        tasks: `TernGradStrategy.tasks`; None (no cluster) passes all errors unchanged.

    Raises:
        PeerError: TensorFlow raised an error that comes from another process.
    """
    try:
        yield
    except Exception as error:
        line = _line_of(error, tasks)
        if line is None:
            raise
        _logger.debug("%s", line, exc_info=True)
        raise PeerError(line) from None


def _line_of(error, tasks):
    """Returns the line of an error's `PeerError`, or None for this process's errors."""
    message = str(error)
    cause = error
    while cause is not None:
        # TensorFlow and Keras wrap errors raised during a trace.
        if isinstance(cause, PeerError) and str(cause) in message:
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    if tasks is None or not _FROM_PEERS.search(message):
        return None
    line = explain(message, tasks, peers.unreachable(tasks))
    peers.tell_all(f"{line} (found by {tasks.names[tasks.index]})")
    return line


def explain(message: str, tasks: Tasks, unreachable: Mapping[int, str] | None = None) -> str:
    """Returns one line on the failure in TensorFlow's message, and the processes at fault."""
    if told := peers.told_in(message):
        return told
    if "Could not start gRPC server" in message:
        return peers.port_in_use(tasks)
    if different := _DIFFERENT.search(message):
        sentence = _OWN_OP.sub("", different.group()).strip()
        return watchdog.find_difference() or (
            f"the processes run different programs. TensorFlow says: {sentence}"
        )
    gone = dict.fromkeys(named(message, tasks), "") | dict(unreachable or {})
    if "Barrier timed out" in message or "RegisterTask" in message:
        return peers.last_words(tasks, gone) or peers.not_started(tasks, gone)
    if "Collective has timed out" in message:
        what = tasks.describe_all(gone) or "none"
        waited = f"waited for the other processes too long; out of reach: {what}"
        return peers.last_words(tasks, gone) or waited
    if gone:
        return peers.lost(tasks, gone)
    if _was_silent(message, tasks):
        own = tasks.describe(tasks.index)
        return f"the others did not hear from {own}, this process, in time{peers.own_pause()}"
    return f"lost another process, which one is not known{peers.own_pause()}"


def named(message: str, tasks: Tasks) -> set[int]:
    """Returns the other processes that a message of TensorFlow names."""
    members = _members(message)
    # The coordination service runs in the first process.
    is_other = bool(members - {tasks.names[tasks.index]})
    if not is_other and _LEADER.search(message) and not _was_silent(message, tasks):
        members.add(tasks.names[0])
    return {tasks.names.index(task) for task in members & {*tasks.names}} - {tasks.index}


def _was_silent(message, tasks):
    """Returns True if the others missed this process's heartbeats, as of a suspended process."""
    return _members(message) == {tasks.names[tasks.index]} and bool(_SILENT.search(message))


def _members(message):
    return {f"{job} {task}" for job, task in _TASK.findall(_OWN_OP.sub("", message))}

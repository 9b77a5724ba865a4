"""The processes of a cluster: names, reachability, and one line on those at fault."""

import concurrent.futures
import contextlib
import dataclasses
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.common.last_line import one_line
from terngrad_tf.common.places import places
from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication import connections, endings
from terngrad_tf.distribute.communication.pauses import pauses

# Encloses a process's report.
_MARK = "=~="
_REPORTED = re.compile(f"{_MARK}(.*?){_MARK}", re.DOTALL)
_POLL_SECONDS = 0.5
_FIRST_REPORT_SECONDS = 10.0
_REPORT_SECONDS = 60.0
_MOST_PROBES = 32

_logger = logging.getLogger(__name__)


class PeerError(RuntimeError):
    """A process of the cluster is lost, out of reach, or runs a different program."""


@dataclasses.dataclass(frozen=True)
class Tasks:
    """The training processes of a cluster, the chief first, with names such as "worker 1"."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    index: int

    def describe(self, index: int, why: str | None = "") -> str:
        """Returns text such as "worker 1 (10.0.0.2:2222: connection refused)"."""
        return f"{self.names[index]} ({self.addresses[index]}{': ' + why if why else ''})"

    def describe_all(self, reasons: Mapping[int, str]) -> str:
        """Describes several processes, given as `{index: reason}`."""
        return ", ".join(self.describe(index, why) for index, why in sorted(reasons.items()))


def tasks_of(
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
    jobs: Sequence[str] = ("chief", "worker"),
) -> Tasks:
    """Returns the `Tasks` of a cluster resolver, for these jobs in order.

    Raises:
        ValueError: this process belongs to none of the jobs, such as an evaluator.
    """
    cluster = cluster_resolver.cluster_spec().as_dict()
    members = [(job, i, a) for job in jobs for i, a in enumerate(cluster.get(job, ()))]
    places = [task[:2] for task in members]
    own = (cluster_resolver.task_type, cluster_resolver.task_id)
    if own not in places:
        raise ValueError(
            f"This process must be a {' or a '.join(jobs)} of the cluster. "
            f"Received: {own[0]} {own[1]} of {cluster}"
        )
    names = tuple(f"{job} {i}" for job, i in places)
    return Tasks(names, tuple(address for *_, address in members), places.index(own))


def tell_all(line: str) -> None:
    """Makes the exchanges of all processes, this one too, fail with a line."""
    endings.note_told()
    private.report_error(f"{_MARK}{line}{_MARK}")


def told_in(message: str) -> str | None:
    """Returns the line of `tell_all` in an error's message, or None."""
    reported = _REPORTED.search(message)
    return reported and reported.group(1)


@contextlib.contextmanager
def propagate_errors(tasks: Tasks | None) -> Iterator[None]:
    """Ends the other processes with this process's error, not with the loss of this process.

    Example:
    >>> with propagate_errors(None):  # strategy.tasks
    ...     pass  # read data, train

    Args:
        tasks: `TernGradStrategy.tasks`; None (no cluster) changes nothing.
    """
    try:
        yield
    except PeerError:
        raise  # the others know
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            report_end(tasks, error)
        raise


def report_end(tasks: Tasks | None, error: BaseException) -> None:
    """Reports to other processes, if any, why this one ends."""
    if tasks is not None:
        tell_all(ended(tasks, error))


def ended(tasks: Tasks, error: BaseException) -> str:
    """Returns why this process ends, in one line for the others."""
    is_interrupt = isinstance(error, KeyboardInterrupt)
    why = "interrupted (Ctrl-C)" if is_interrupt else one_line(error) or type(error).__name__
    return f"{tasks.describe(tasks.index)} ended: {why}"


def lost(tasks: Tasks, gone: Mapping[int, str]) -> str:
    """Returns one line on processes, given as `{index: reason}`, that are gone."""
    return last_words(tasks, gone) or f"lost {tasks.describe_all(gone)}{own_pause()}"


def own_pause() -> str:
    """Returns a clause if this process, perhaps suspended, is itself at fault; else ""."""
    seconds = pauses.recent()
    return "" if seconds is None else f"; this process itself did not run for {seconds:.0f} s"


def last_words(tasks: Tasks, gone: Iterable[int]) -> str | None:
    """Returns one line on the gone processes that announced their end, or None."""
    over = {index: why for index in gone if (why := endings.of_lost(index)) is not None}
    return next(filter(None, over.values()), None) or alone(tasks, over) if over else None


def alone(tasks: Tasks, over: Iterable[int]) -> str:
    """Returns one line on processes that this one needs but whose program is over."""
    who = tasks.describe_all(dict.fromkeys(over, "its program is over"))
    place = places.waits_at
    if place is None:
        return f"lost {who}"
    return f"lost {who} while this process waits in {place}, where all must take part"


def at_different_places(tasks: Tasks, at: Mapping[int, str]) -> str:
    """Returns one line on processes that wait for each other at different places."""
    who: dict[str, list[str]] = {}
    for index, place in at.items():
        who.setdefault(place, []).append(tasks.names[index])
    where = ", ".join(f"{' and '.join(names)} in {place}" for place, names in who.items())
    return (
        f"the processes wait for each other at different places: {where};"
        " all must take part in the same, in the same order"
    )


def not_started(tasks: Tasks, missing: Mapping[int, str]) -> str:
    """Returns one line on missing processes, given as `{index: reason}`."""
    return f"not all processes started in time; missing: {_describe_missing(tasks, missing)}"


def _describe_missing(tasks, missing):
    hint = "; if it was started, TF_CONFIG may not be set there"
    is_silent = connections.REFUSED in missing.values()
    return (tasks.describe_all(missing) or "not known") + (hint if is_silent else "")


def port_in_use(tasks: Tasks) -> str:
    """Returns one line on this process's port, which another program uses."""
    return (
        f"{tasks.describe(tasks.index)} cannot listen on its port: is it in use, perhaps by an"
        " earlier run that still ends?"
    )


def unreachable(tasks: Tasks, among: Iterable[int] | None = None) -> dict[int, str]:
    """Returns `{index: reason}` of other processes (default: all) whose port does not answer."""
    failures = of_others(
        tasks, among, lambda index: connections.connection_failure(tasks.addresses[index])
    )
    return {index: reason for index, reason in failures.items() if reason}


def of_others(
    tasks: Tasks, among: Iterable[int] | None, function: Callable[[int], Any]
) -> dict[int, Any]:
    """Returns `{index: result}` of a function of the other indices in `among`, called at once."""
    among = range(len(tasks.names)) if among is None else among
    others = [index for index in among if index != tasks.index]
    with concurrent.futures.ThreadPoolExecutor(_MOST_PROBES) as pool:
        return dict(zip(others, pool.map(function, others), strict=True))


def wait_for_all(tasks: Tasks, timeout: float, look: Callable[..., Any] = unreachable) -> None:
    """Waits until `look` finds no missing process; logs them, raises PeerError after `timeout`."""
    start = time.monotonic()
    next_report = start + _FIRST_REPORT_SECONDS
    missing = look(tasks, None)
    while missing:
        now = time.monotonic()
        if now > start + timeout:
            raise PeerError(not_started(tasks, missing))
        if now > next_report:
            _logger.warning("waiting for %s", _describe_missing(tasks, missing))
            next_report = now + _REPORT_SECONDS
        time.sleep(_POLL_SECONDS)
        missing = look(tasks, missing)

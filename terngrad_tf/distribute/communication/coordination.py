"""Shares values, results and errors between the processes of a cluster outside training.

All processes continue, or all end, together.
"""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from terngrad_tf.common.places import places
from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication import peers, watchdog
from terngrad_tf.distribute.communication.connections import REFUSED, connection_failure
from terngrad_tf.distribute.communication.failures import peer_errors
from terngrad_tf.distribute.communication.peers import PeerError

_POLL_SECONDS = 1.0
# The first process stores the values, so it ends after the others have read them.
_LEADER_WAIT_SECONDS = 10.0

_exchanges = itertools.count()


def all_gather_object(
    strategy: tf.distribute.Strategy,
    topic: str,
    value: Any,
    *,
    is_last: Callable[[list[Any]], bool] | None = None,
    timeout: float | None = None,
) -> list[Any]:
    """Returns the values of all processes on every process.

    Every process of the cluster must call it with the same topics in the same order.

    Example:
    >>> all_gather_object(terngrad_tf.TernGradStrategy(num_nodes=1), "size", 7)
    [7]

    Args:
        strategy: a `TernGradStrategy`; other strategies have one process.
        topic: str, name of the shared value, for errors.
        value: a value that JSON can hold.
        is_last: function of the list of values that returns True if this process may end now; the
            first process then waits until the others have read the values. Default: never.
        timeout: seconds to wait for the others. Default: the strategy's `start_timeout`.

    Returns:
        List with the value of each process, the chief's first.

    Raises:
        PeerError: a process ended, or did not come to this point in time.
    """
    tasks = getattr(strategy, "tasks", None)
    if tasks is None or len(tasks.names) == 1:
        return [value]
    key = f"terngrad_tf/shared/{next(_exchanges)}"
    deadline = time.monotonic() + (strategy.start_timeout if timeout is None else timeout)
    with peer_errors(tasks), places.at(f"the exchange of {topic}"):
        private.publish(f"{key}/{tasks.index}", json.dumps([places.waits_at, topic, value]))
        texts = [read(tasks, i, f"{key}/{i}", topic, deadline) for i in range(len(tasks.names))]
        at, topics, values = zip(*map(json.loads, texts), strict=True)
        values, apart = list(values), len({*zip(at, topics, strict=True)}) > 1
        if apart or (is_last is not None and is_last(values)):
            private.publish(f"{key}/{tasks.index}/read", "")
            if tasks.index == 0:
                for index in range(1, len(tasks.names)):
                    private.published(f"{key}/{index}/read", _LEADER_WAIT_SECONDS)
        if apart:
            raise PeerError(peers.at_different_places(tasks, dict(enumerate(at))))
    return values


def run_on_all(
    strategy: tf.distribute.Strategy,
    topic: str,
    function: Callable[..., Any],
    *,
    timeout: float | None = None,
) -> list[Any]:
    """Returns a function's results on all processes; if it fails on one, all processes fail.

    Example:
    >>> run_on_all(terngrad_tf.TernGradStrategy(num_nodes=1), "the data set", lambda: 1797)
    [1797]

    Args:
        strategy: a `TernGradStrategy`; other strategies have one process.
        topic: str, name of the work, for errors.
        function: function without arguments; JSON must be able to hold its result.
        timeout: as in `all_gather_object`.

    Returns:
        List with the result of each process, the chief's first.

    Raises:
        Exception: the function's error on this process.
        PeerError: the function failed on another process, named with the reason; or as in
            `all_gather_object`.
    """
    tasks = getattr(strategy, "tasks", None)
    if tasks is None:
        return [function()]
    outcome, own_error = {}, None
    try:
        outcome["result"] = function()
    except Exception as error:
        own_error = error
        outcome["error"] = peers.ended(tasks, error)
    try:
        outcomes = all_gather_object(
            strategy,
            topic,
            outcome,
            is_last=lambda all_: any(map(_failed, all_)),
            timeout=timeout,
        )
    except PeerError:
        if own_error is None:
            raise
    if own_error is not None:
        raise own_error
    for other in filter(_failed, outcomes):
        raise PeerError(other["error"])
    return [one["result"] for one in outcomes]


def run_on_chief(
    strategy: tf.distribute.Strategy,
    topic: str,
    function: Callable[..., Any],
    *,
    timeout: float | None = None,
) -> Any:
    """Like `run_on_all`, for a function called on the chief only. Returns its result everywhere."""
    function = function if strategy.is_chief else lambda: None
    return run_on_all(strategy, topic, function, timeout=timeout)[0]


def _failed(outcome):
    return "error" in outcome


def read(tasks: Any, index: int, key: str, topic: str, deadline: float) -> str:
    """Waits for the text that a process publishes under a key, until a time of `time.monotonic`.

    Raises:
        PeerError: the process ended, or did not come to this point in time.
    """
    while True:
        try:
            text = private.published(key, _POLL_SECONDS)
        except tf.errors.OpError:
            watchdog.check()  # it ended the other process, and knows why
            raise
        if text is not None:
            return text
        watchdog.check()
        failure = connection_failure(tasks.addresses[index]) if index != tasks.index else None
        if failure == REFUSED:
            unsent = f"lost {tasks.describe(index, failure)} before it sent its {topic}"
            raise PeerError(peers.last_words(tasks, [index]) or unsent)
        if time.monotonic() > deadline:
            raise PeerError(
                f"{tasks.describe(index, failure or '')} did not send its {topic} in time"
            )

"""What the hosts of a cluster tell each other outside of training: values, results, errors.

Each host publishes a text and reads those of all others, so that all go on, or all end, together.
"""

import itertools
import json
import time

from terngrad_tf.distribute import private
from terngrad_tf.distribute.connections import REFUSED, connection_failure
from terngrad_tf.distribute.peers import PeerError, ended, peer_errors

_POLL_SECONDS = 1.0
# The first host keeps the published values; before it may end, it waits so long for the others to
# read them.
_LEADER_WAIT_SECONDS = 10.0

_exchanges = itertools.count()


def share(strategy, topic, value, *, is_last=None, timeout=None):
    """Gives every host what every host gave.

    Every host of the cluster must call it with the same topics in the same order.

    Example:
    >>> share(terngrad_tf.TernGradStrategy(num_nodes=1), "size", 7)
    [7]

    Args:
        strategy: a `TernGradStrategy`.
        topic: str, what is shared; part of the error.
        value: what JSON can hold.
        is_last: function of the list of values: whether this process may end now, so that the
            first host must wait until the others have read. Default: never.
        timeout: seconds to wait for the others. Default: the strategy's `start_timeout`.

    Returns:
        List with the value of each host, that of the chief first.

    Raises:
        PeerError: a host ended, or did not come to this point in time.
    """
    hosts = strategy.hosts
    if hosts is None or len(hosts.names) == 1:
        return [value]
    key = f"terngrad_tf/shared/{next(_exchanges)}"
    deadline = time.monotonic() + (strategy.start_timeout if timeout is None else timeout)
    with peer_errors(hosts):
        private.publish(f"{key}/{hosts.index}", json.dumps(value))
        texts = [_read(hosts, i, f"{key}/{i}", topic, deadline) for i in range(len(hosts.names))]
        values = [json.loads(text) for text in texts]
        if is_last is not None and is_last(values):
            private.publish(f"{key}/{hosts.index}/read", "")
            if hosts.index == 0:
                for index in range(1, len(hosts.names)):
                    private.published(f"{key}/{index}/read", _LEADER_WAIT_SECONDS)
    return values


def on_each_host(strategy, topic, function, *, timeout=None):
    """What a function returns on each host; where it fails on one, all hosts fail.

    Example:
    >>> on_each_host(terngrad_tf.TernGradStrategy(num_nodes=1), "the data set", lambda: 1797)
    [1797]

    Args:
        strategy: a `TernGradStrategy`.
        topic: str, what is done; part of the error.
        function: function without arguments; what it returns must be what JSON can hold.
        timeout: as for `share`.

    Returns:
        List with the result of each host, that of the chief first.

    Raises:
        Exception: what the function raised on this host.
        PeerError: it raised on another host, which is named with the reason; or as for `share`.
    """
    hosts = strategy.hosts
    if hosts is None:
        return [function()]
    outcome, own_error = {}, None
    try:
        outcome["result"] = function()
    except Exception as error:
        own_error = error
        outcome["error"] = ended(hosts, error)
    try:
        outcomes = share(
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


def on_chief(strategy, topic, function, *, timeout=None):
    """As `on_each_host` for a function that only the chief calls. Returns its result everywhere."""
    function = function if strategy.is_chief else lambda: None
    return on_each_host(strategy, topic, function, timeout=timeout)[0]


def _failed(outcome):
    return "error" in outcome


def _read(hosts, index, key, topic, deadline):
    while True:
        text = private.published(key, _POLL_SECONDS)
        if text is not None:
            return text
        failure = connection_failure(hosts.addresses[index]) if index != hosts.index else None
        if failure == REFUSED:
            raise PeerError(f"lost {hosts.describe(index, failure)} before it told its {topic}")
        if time.monotonic() > deadline:
            raise PeerError(
                f"{hosts.describe(index, failure or '')} did not tell its {topic} in time"
            )

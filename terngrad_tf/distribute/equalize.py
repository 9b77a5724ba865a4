"""Whether the processes of a cluster hold the same variables, and making them hold the chief's."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.broadcast import broadcast_variables
from terngrad_tf.distribute.handshake import compare_processes

# Of a digest; 128 bits.
_BYTES = 16
_WORDS = _BYTES // 4
_MOST_NAMES = 5

_logger = logging.getLogger(__name__)


def equalize_variables(
    strategy: tf.distribute.Strategy, variables: Iterable[keras.Variable]
) -> dict[str, list[str]]:
    """Gives all processes the chief's variables where they differ, and warns of it.

    They should never: all apply the same updates. Processors that compute the same program
    differently, or memory that fails, could make them. Every process of the cluster must call it,
    outside of replicas, with the same variables in the same order. Each hashes its own (SHA-256)
    and sends 16 bytes; more travels only where they differ. Does nothing without a cluster.

    Example:
    >>> equalize_variables(terngrad_tf.TernGradStrategy(num_nodes=1), [tf.Variable(1.0)])
    {}

    Args:
        strategy: a `TernGradStrategy`.
        variables: as for `broadcast_variables`.

    Returns:
        Dict from the names of the processes that did not hold what the chief holds to the names of
        those variables; the same on all processes.

    Raises:
        ValueError: a variable holds strings.
        PeerError: variables differ between the processes in number, shape or dtype.
    """
    group = strategy.extended.process_group
    if group is None:
        return {}
    variables = list(variables)
    digests = [_digest(_copies(strategy, variable), group.rank) for variable in variables]
    whole = hashlib.sha256(b"".join(digests)).digest()[:_BYTES]
    if not _different(group, whole).any():
        return {}
    compare_processes(strategy, "variables", {"number of variables": len(variables)})
    different = _different(group, b"".join(digests))
    found = {
        task: [_name(v) for v, differs in zip(variables, row, strict=True) if differs]
        for task, row in zip(strategy.tasks.names, different, strict=True)
        if row.any()
    }
    where = "; ".join(f"on {task} {_told(names)}" for task, names in found.items())
    chief = strategy.tasks.names[0]
    _logger.warning("variables were not those of %s, which all have now: %s", chief, where)
    columns = different.any(axis=0)
    broadcast_variables(strategy, [v for v, any_ in zip(variables, columns, strict=True) if any_])
    return found


def _copies(strategy, variable):
    """The variable's copies on the local replicas, each once."""
    value = variable.value if isinstance(variable, keras.Variable) else variable
    return {id(c): c for c in strategy.experimental_local_results(value)}.values()


def _digest(copies: Iterable[Any], rank: int) -> bytes:
    contents = (np.ravel(copy.numpy()).view(np.uint8).data for copy in copies)
    digests = [hashlib.sha256(content).digest()[:_BYTES] for content in contents]
    if len(set(digests)) == 1:
        return digests[0]
    # Copies that differ within a process are those of no other process.
    return hashlib.sha256(b"".join(digests) + rank.to_bytes(4, "big")).digest()[:_BYTES]


def _different(group, digests):
    """Where those of each process are not the first's: `[processes, digests]` of bool."""
    words = group.all_gather(tf.constant(np.frombuffer(digests, np.int32))).numpy()
    each = words.reshape(len(words), -1, _WORDS)
    return (each != each[0]).any(axis=-1)


def _name(variable):
    return variable.path if isinstance(variable, keras.Variable) else variable.name


def _told(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

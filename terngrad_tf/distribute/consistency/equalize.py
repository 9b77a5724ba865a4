"""Compares the variables of a cluster's processes, and replaces different ones by the chief's."""

import itertools
import logging
from collections.abc import Iterable, Sequence

import keras
import tensorflow as tf

from terngrad_tf.distribute.consistency.broadcast import broadcast_variables, numbers
from terngrad_tf.distribute.consistency.digests import digest_of, digest_of_all, gather_digests
from terngrad_tf.distribute.consistency.handshake import compare_processes

_MOST_NAMES = 5

_logger = logging.getLogger(__name__)


def equalize_variables(
    strategy: tf.distribute.Strategy, variables: Iterable[keras.Variable]
) -> dict[str, list[str]]:
    """Gives all processes the chief's variables if they differ, with a warning.

    They should never differ, except for faulty memory or processors that compute the same program
    differently. Every process of the cluster must call this function, outside replicas, with the
    same variables in the same order. Each sends 16 bytes of a hash (SHA-256), and more only if they
    differ. Does nothing without a cluster.

    Example:
    >>> equalize_variables(terngrad_tf.TernGradStrategy(num_nodes=1), [tf.Variable(1.0)])
    {}

    Args:
        strategy: a `TernGradStrategy`.
        variables: as in `broadcast_variables`.

    Returns:
        Dict from processes' names to the names of their variables that differed from the chief's;
        the same on all processes.

    Raises:
        ValueError: a variable holds strings.
        PeerError: variables differ between the processes in number, shape or dtype.
    """
    variables = numbers(variables)
    if strategy.extended.process_group is None:
        return {}
    digests = [digest_of(strategy, variable) for variable in variables]
    of_all = gather_digests(strategy, [digest_of_all(digests)])
    if (of_all == of_all[0]).all():
        return {}
    compare_processes(strategy, "variables", {"number of variables": len(variables)})
    of_each = gather_digests(strategy, digests)
    different = of_each != of_each[0]
    found = {
        task: [_name(variable) for variable in itertools.compress(variables, row)]
        for task, row in zip(strategy.tasks.names, different, strict=True)
        if row.any()
    }
    where = "; ".join(f"on {task} {_told(names)}" for task, names in found.items())
    chief = strategy.tasks.names[0]
    _logger.warning("variables were not those of %s, which all have now: %s", chief, where)
    differs = different.any(axis=0)
    broadcast_variables(strategy, [*itertools.compress(variables, differs)])
    return found


def _name(variable):
    return variable.path if isinstance(variable, keras.Variable) else variable.name


def _told(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

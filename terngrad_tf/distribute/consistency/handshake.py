"""Checks that all processes of a cluster were started alike, before they train.

Otherwise they may train without an error, and give a wrong result.
"""

import functools
import hashlib
import json
import pathlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.common.options import shared_values
from terngrad_tf.distribute.communication.coordination import all_gather_object
from terngrad_tf.distribute.communication.peers import PeerError
from terngrad_tf.version import __version__

_compared_models = weakref.WeakKeyDictionary()


def compare_processes(
    strategy: tf.distribute.Strategy, topic: str, metadata: Mapping[str, Any]
) -> None:
    """Returns on all processes if `metadata` are equal; otherwise raises an error on all.

    Every process of the cluster must call this function with the same topics in the same order.
    Does nothing without a cluster.

    Example:
    >>> strategy = terngrad_tf.TernGradStrategy(num_nodes=1)
    >>> compare_processes(strategy, "flags", {"batch_size": 64, "initial_learning_rate": 0.01})

    Args:
        strategy: a `TernGradStrategy`.
        topic: str, name of the metadata, for errors.
        metadata: dict from str to values that JSON can hold.

    Raises:
        PeerError: metadata differ, or a process did not come to this point within the strategy's
            `start_timeout`.
    """
    names = strategy.tasks.names if strategy.tasks else ("worker 0",)
    shared = all_gather_object(
        strategy, topic, dict(metadata), is_last=lambda all_: bool(diff(all_, names))
    )
    if different := diff(shared, names):
        raise PeerError(f"the processes' {topic} differ: {'; '.join(different.values())}")


def diff(metadata: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, str]:
    """Returns phrases on differing entries by key, in order.

    Example:
    >>> diff([{"seed": 1}, {"seed": 5}, {"seed": 1}], ["worker 0", "worker 1", "worker 2"])
    {'seed': 'seed is 1 on worker 0, worker 2 but 5 on worker 1'}
    """
    phrases = {}
    for key in sorted(set().union(*metadata)):
        holders = {}
        for process, name in zip(metadata, names, strict=True):
            value = json.dumps(process[key]) if key in process else "missing"
            holders.setdefault(value, []).append(name)
        if len(holders) > 1:
            most_first = sorted(holders.items(), key=lambda item: -len(item[1]))
            told = " but ".join(f"{value} on {', '.join(who)}" for value, who in most_first)
            phrases[key] = f"{key} is {told}"
    return phrases


def strategy_metadata(
    gradient_ops: Any, num_local: int, num_processes: int, communication: str
) -> dict[str, Any]:
    """Returns the settings that matching strategies share."""
    return (
        shared_values(gradient_ops.quantization)
        | shared_values(gradient_ops.options)
        | ({"grad_bits": "auto"} if gradient_ops.options.chooses_mode else {})
        | code_metadata()
        | {
            "number of processes": num_processes,
            "replicas a process": num_local,
            "communication": communication,
        }
    )


def code_metadata() -> dict[str, Any]:
    """Returns the code and versions that all processes must share."""
    return {
        "code": code_digest(),
        "terngrad_tf": __version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def compare_models(
    strategy: tf.distribute.Strategy,
    gradients: Sequence[Any],
    ternary_positions: Sequence[int],
    told_float_steps: Callable[[], str],
) -> None:
    """Compares the gradients of a model like `compare_processes`, in its first trace.

    Args:
        strategy: reduces the gradients.
        gradients: a local tensor or `tf.IndexedSlices` for each.
        ternary_positions: positions of those to be rounded.
        told_float_steps: returns which steps are float.
    """
    if getattr(strategy, "tasks", None) is None:
        return
    metadata: dict[str, Any] = {
        "number of gradients": len(gradients),
        "float_steps": told_float_steps(),
    }
    for position, gradient in enumerate(gradients):
        bits = "ternary" if position in ternary_positions else "float"
        metadata[f"gradient {position}"] = f"{bits} {gradient.dtype.name} {gradient.shape}"
    known = _compared_models.setdefault(strategy, [])
    if metadata not in known:
        # Processes may retrace at different times, without another comparison.
        known.append(metadata)
        compare_processes(strategy, "models", metadata)


@functools.cache
def code_digest() -> str:
    """Returns a digest of the package's source files."""
    root = pathlib.Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]

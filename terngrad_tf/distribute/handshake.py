"""Whether all hosts of a cluster were started alike, asked before they train together.

Hosts that run other code, options or models may train side by side without an error and give a
wrong result. Each host publishes what it was started with and reads what all others were.
"""

import functools
import hashlib
import json
import pathlib
import weakref

import keras
import tensorflow as tf

from terngrad_tf.distribute.agreement import share
from terngrad_tf.distribute.peers import PeerError
from terngrad_tf.version import __version__

_compared_models = weakref.WeakKeyDictionary()


def compare_hosts(strategy, topic, facts):
    """Returns on all hosts where `facts` are equal, and raises on all where they are not.

    Every host of the cluster must call it with the same topics in the same order. Does nothing
    without a cluster.

    Example:
    >>> strategy = terngrad_tf.TernGradStrategy(num_nodes=1)
    >>> compare_hosts(strategy, "flags", {"batch_size": 64, "initial_learning_rate": 0.01})

    Args:
        strategy: a `TernGradStrategy`.
        topic: str, what is compared; part of the error.
        facts: dict of str to what JSON can hold.

    Raises:
        PeerError: facts differ, or a host did not come to this point within the strategy's
            `start_timeout`.
    """
    names = strategy.hosts.names if strategy.hosts else ("worker 0",)
    # The topic stands among the facts, so that hosts at different points learn it.
    own = dict(facts, topic=topic)
    shared = share(strategy, topic, own, is_last=lambda all_: bool(differences(all_, names)))
    if different := differences(shared, names):
        raise PeerError(f"the hosts' {topic} differ: {'; '.join(different)}")


def differences(facts, names):
    """One phrase for each fact that is not the same on all hosts.

    Args:
        facts: list with a dict a host.
        names: their names.

    Returns:
        List of str such as "seed is 1 on worker 0, worker 2 but 5 on worker 1".
    """
    phrases = []
    for key in sorted(set().union(*facts)):
        holders = {}
        for host, name in zip(facts, names, strict=True):
            value = json.dumps(host[key]) if key in host else "missing"
            holders.setdefault(value, []).append(name)
        if len(holders) > 1:
            most_first = sorted(holders.items(), key=lambda item: -len(item[1]))
            phrases.append(
                f"{key} is " + " but ".join(f"{v} on {', '.join(n)}" for v, n in most_first)
            )
    return phrases


def strategy_facts(gradient_ops, num_local, num_hosts):
    """What two hosts must share for their strategies to fit together."""
    facts = {
        name: getattr(value, "__qualname__", value)
        for name, value in vars(gradient_ops).items()
        if not name.startswith("_")
    }
    facts = {k: v for k, v in facts.items() if isinstance(v, bool | int | float | str)}
    return (
        facts | code_facts() | {"number of hosts": num_hosts, "number of workers a host": num_local}
    )


def code_facts():
    """What all processes of a cluster must share, whatever they do: code and versions."""
    return {
        "code": code_digest(),
        "terngrad_tf": __version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }


def compare_models(strategy, gradients, ternary_positions):
    """As `compare_hosts` for the gradients of a model, the first time that it is traced.

    Args:
        strategy: the strategy that is to reduce them.
        gradients: one local tensor or `tf.IndexedSlices` each.
        ternary_positions: those that are to be rounded.

    Raises:
        PeerError: hosts differ in the number, order, shapes, dtypes or rounding of the gradients.
    """
    if getattr(strategy, "hosts", None) is None:
        return
    facts = {"number of gradients": len(gradients)}
    for position, gradient in enumerate(gradients):
        bits = "ternary" if position in ternary_positions else "float"
        facts[f"gradient {position}"] = f"{bits} {gradient.dtype.name} {gradient.shape}"
    known = _compared_models.setdefault(strategy, [])
    if facts not in known:
        # Retracing, which hosts may do at different times, compares nothing anew.
        known.append(facts)
        compare_hosts(strategy, "models", facts)


@functools.cache
def code_digest():
    """Digest of the package's source files, to tell one version of the code from another."""
    root = pathlib.Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]

"""The chief's random seed for what nobody has seeded."""

import secrets

import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication.coordination import all_gather_object


def agree_on_seeds(strategy: tf.distribute.Strategy) -> None:
    """Lets all processes shuffle alike where the program has not set a seed.

    Python's and NumPy's generators are seeded if no process has seeded them or drawn from them, and
    data sets of `tf.data` that are made from now on if neither they nor TensorFlow have a seed.
    Every process of the cluster must call it.

    Args:
        strategy: a `TernGradStrategy` over several processes.
    """
    own = [1 + secrets.randbits(62), private.unseeded_generators()]
    (seed, states), *others = all_gather_object(strategy, "random seed", own)
    # Those that are alike were seeded before the package was imported.
    unseeded = [
        name
        for name, state in states.items()
        if all(name in more for _, more in others)
        and any(more[name] != state for _, more in others)
    ]
    private.seed_alike(seed, unseeded)

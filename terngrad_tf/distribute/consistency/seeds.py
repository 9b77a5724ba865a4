"""Shares the chief's random seed if the program sets no seeds."""

import secrets

import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication.coordination import all_gather_object


def agree_on_seeds(strategy: tf.distribute.Strategy) -> None:
    """Lets all processes shuffle alike if the program has not set a seed; all must call it.

    Seeds Python's and NumPy's generators if no process has seeded or used them. Later data sets of
    `tf.data` get seeds unless they or TensorFlow have one.
    """
    own = [1 + secrets.randbits(62), private.unseeded_generators()]
    (seed, states), *others = all_gather_object(strategy, "random seed", own)
    # Equal generators were seeded before the package was imported.
    unseeded = [
        name
        for name, state in states.items()
        if all(name in more for _, more in others)
        and any(more[name] != state for _, more in others)
    ]
    private.seed_alike(seed, unseeded)

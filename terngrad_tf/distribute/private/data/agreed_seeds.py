"""Random numbers that all processes of a cluster draw alike if the user sets no seeds."""

import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util import random_seed as data_seeds
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.patches import patch


def _numpy_state():
    _, keys, *rest = np.random.get_state()
    return np.asarray(keys).tobytes(), rest


# {name of a global generator: (function that reads its state, function that seeds it)}.
_GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "python": (random.getstate, random.seed),
    "numpy": (_numpy_state, lambda seed: np.random.seed(seed % 2**32)),
}
_states_at_import = {name: read() for name, (read, _) in _GENERATORS.items()}
# Gives a seed to each data set without one; None without a cluster.
_data_set_seeds: random.Random | None = None


def unseeded_generators() -> dict[str, int]:
    """Returns the generators of Python and NumPy that are unused since the import of this module.

    The result maps "python" and "numpy" to a number for the generator's state.
    """
    states = {name: read() for name, (read, _) in _GENERATORS.items()}
    return {
        name: zlib.crc32(repr(state).encode())
        for name, state in states.items()
        if state == _states_at_import[name]
    }


def seed_alike(seed: int, generators: Iterable[str]) -> None:
    """Seeds generators, and from now on data sets of `tf.data` that shuffle without a seed.

    Ops in steps and in functions of data sets keep their seeds: processes must draw different
    numbers for different examples.

    Args:
        seed: positive int, the same on all processes.
        generators: names from `unseeded_generators`.
    """
    global _data_set_seeds
    _data_set_seeds = random.Random(seed)
    for name in generators:
        read, set_seed = _GENERATORS[name]
        set_seed(seed)
        # A new strategy may seed the generator again.
        _states_at_import[name] = read()


class AgreedSeed(int):
    """A data set's seed, to which TensorFlow's global seed of this process is not added."""


@patch(data_seeds, "get_seed")
def _seed_of_data_set(stock, seed):
    """Gives a data set (`shuffle`, `Dataset.random`, `list_files`) a seed that all processes share.

    Each takes its part of every batch of its own data set; orders must be the same. Public
    functions see only users' seeds.
    """
    if seed is None and _data_set_seeds is not None and context.global_seed() is None:
        seed = AgreedSeed(_data_set_seeds.getrandbits(31))
    if isinstance(seed, AgreedSeed):
        # Two zeros would mean no seed.
        return tf.constant(seed, tf.int64), tf.constant(1, tf.int64)
    return stock(seed)


def states_of_generators() -> dict[str, int | None]:
    """Returns numbers for the states of TensorFlow's and Python's generators; None if unseeded."""
    seed = context.global_seed()
    state = repr(random.getstate()).encode()
    return {"tensorflow": None if seed is None else int(seed), "python": zlib.crc32(state)}

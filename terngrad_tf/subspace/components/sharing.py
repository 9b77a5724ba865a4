"""Shares the chief's subspace with all processes of a cluster."""

import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import run_on_chief
from terngrad_tf.distribute.consistency.broadcast import broadcast_matrix
from terngrad_tf.subspace.components.subspace import Subspace


def share_subspace(
    strategy: tf.distribute.Strategy, find: Callable[[], Subspace], timeout: float
) -> Subspace:
    """Returns, on all processes, a subspace that the chief finds; all processes call this together.

    Other processes receive components and layout only, into an unnamed temporary file, which saves
    memory.

    Args:
        find: returns the subspace; only the chief calls it.
        timeout: seconds that the other processes wait.

    Raises:
        Exception: any exception of `find`, on the chief.
        PeerError: the chief failed or took longer than `timeout`.
    """
    found = None

    def describe():
        nonlocal found
        found = find()
        return [found.components.shape, found.components.dtype.name, found.layout]

    shape, dtype, layout = run_on_chief(strategy, "subspace", describe, timeout=timeout)
    if found is not None:
        broadcast_matrix(strategy, found.components)
        return found
    with tempfile.TemporaryFile() as file:
        components = np.memmap(file, tf.as_dtype(dtype).as_numpy_dtype, "w+", shape=tuple(shape))
        broadcast_matrix(strategy, components)
    if layout is not None:
        layout = tuple((name, tuple(shape)) for name, shape in layout)
    return Subspace(components, layout=layout)

"""The chief's subspace on all processes of a cluster."""

import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import run_on_chief
from terngrad_tf.distribute.consistency.broadcast import broadcast_matrix
from terngrad_tf.subspace.subspace import Subspace


def share_subspace(
    strategy: tf.distribute.Strategy, find: Callable[[], Subspace], timeout: float
) -> Subspace:
    """A subspace that the chief finds, on all processes.

    The others receive the components over the network into a temporary file that has no name, so
    that they need no more memory than for a subspace loaded from a file.

    Args:
        strategy: a `TernGradStrategy`; all processes call this.
        find: function without arguments that returns a `Subspace`; the chief alone calls it.
        timeout: seconds that the others wait for it.

    Returns:
        A `Subspace`; on processes other than the chief with the components and the layout alone.

    Raises:
        Exception: what `find` raised, on the chief.
        PeerError: the chief failed, or took longer.
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

"""A subspace's directions, divided among the processes of a cluster."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.exchange import traffic
from terngrad_tf.subspace.optimizers import replicas
from terngrad_tf.subspace.optimizers.basis import FLOAT_BYTES, sizes_of, to_float32


class ShardedBasis:
    """One piece [k, n / processes] of the components per process, on its first device.

    Each process receives the gradients' sums for its own weights; processes exchange the k
    coordinates of their pieces; each computes `P^T c` for its own weights, and all gather the
    results. With M processes and n weights, a process receives `2 (M - 1) / M` times 4 n bytes per
    step. Splitting by components would take twice that.
    """

    def __init__(
        self,
        components: np.ndarray,
        variables: Sequence[keras.Variable],
        strategy: tf.distribute.Strategy,
        dtype: str,
    ) -> None:
        self._shapes = [tuple(v.shape) for v in variables]
        self._num_components, self._num_weights = components.shape
        rank, self._num_processes = replicas.process_index_and_count(strategy)
        self._width = _piece_width(self._num_weights, self._num_processes)
        self._start = rank * self._width
        own = components[:, self._start : self._start + self._width]
        with tf.init_scope(), tf.device(replicas.devices_of(strategy)[0]):
            piece = tf.cast(tf.constant(np.ascontiguousarray(own)), dtype)
            self._piece = tf.pad(piece, [[0, 0], [0, self._width - own.shape[1]]])

    def project_sum(
        self, strategy: tf.distribute.Strategy, gradients: Sequence[Any], loss: tf.Tensor
    ) -> tf.Tensor:
        """See `ReplicatedBasis.project_sum`."""
        with tf.device(replicas.devices_of(strategy)[0]):
            sums = [replicas.sum_locally(strategy, g) for g in gradients]
            pieces = tf.reshape(self._flat(sums), [self._num_processes, self._width])
            own = tf.reduce_sum(replicas.all_to_all(strategy, pieces), 0)
            sent = tf.concat([self._project_piece(own), [loss]], 0)
        return replicas.all_reduce(strategy, sent)

    def project(self, strategy: tf.distribute.Strategy, gradients: Sequence[Any]) -> tf.Tensor:
        """See `ReplicatedBasis.project`."""
        with tf.device(replicas.devices_of(strategy)[0]):
            own = self._flat(gradients)[self._start : self._start + self._width]
            sent = self._project_piece(own)
        return replicas.all_reduce(strategy, sent)

    def back_project(
        self, strategy: tf.distribute.Strategy, coordinates: tf.Tensor
    ) -> dict[str, list[tf.Tensor]]:
        """See `ReplicatedBasis.back_project`."""
        devices = dict.fromkeys(replicas.devices_of(strategy))
        with tf.device(next(iter(devices))):
            own = tf.matmul(coordinates[tf.newaxis], to_float32(self._piece))[0]
            flat = tf.reshape(replicas.all_gather(strategy, own), [-1])[: self._num_weights]
            parts = tf.split(flat, sizes_of(self._shapes))
            parts = [tf.reshape(p, s) for p, s in zip(parts, self._shapes, strict=True)]
        found = {}
        for device in devices:
            with tf.device(device):
                found[device] = [tf.identity(part) for part in parts]
        return found

    def received_bytes(self, num_processes: int, outside: bool) -> float:
        """See `ReplicatedBasis.received_bytes`."""
        pieces, projections = (3, 2) if outside else (2, 1)
        width = _piece_width(self._num_weights, num_processes)
        numbers = traffic.ring_bytes(FLOAT_BYTES * self._num_components, num_processes)
        return projections * numbers + pieces * (num_processes - 1) * FLOAT_BYTES * width

    def _project_piece(self, gradient):
        return tf.linalg.matvec(to_float32(self._piece), gradient)

    def _flat(self, gradients):
        """Returns all gradients as one vector, zero-padded to equal pieces."""
        parts = [
            tf.zeros([size]) if g is None else to_float32(tf.reshape(g, [-1]))
            for g, size in zip(gradients, sizes_of(self._shapes), strict=True)
        ]
        fill = self._num_processes * self._width - self._num_weights
        return tf.concat([*parts, tf.zeros([fill])], 0)


def _piece_width(num_weights, num_processes):
    return -(-num_weights // num_processes)

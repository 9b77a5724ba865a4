"""Collectives and messages between the processes of a cluster."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import collective_util, cross_device_utils
from tensorflow.python.distribute.collective_util import CommunicationImplementation
from tensorflow.python.eager import context
from tensorflow.python.ops import collective_ops

from terngrad_tf.common.places import places
from terngrad_tf.distribute.private.collectives.stamps import run_independently

# Up to this many numbers together, processes send to all at once: a ring takes more turns, but
# large messages meet in one link.
_FEW = 2**14


class ProcessGroup:
    """Collectives with one member per process: its first GPU over NCCL, or its CPU in a ring.

    All tensors must have the same shape and dtype on every process.
    """

    def __init__(self, extended: Any):
        self.size = extended._num_workers
        self.rank = extended._id_in_cluster
        self._options = extended._communication_options
        self.is_nccl = self._options.implementation == CommunicationImplementation.NCCL
        # A ring of GPUs would pass through their hosts as well.
        self.device = extended.worker_devices[0] if self.is_nccl else extended.host_device
        keys = extended._collective_keys
        self._group_key = keys.get_group_key([self.device])
        self._keys = extended.static_keys
        self._traced = extended.traced_places
        self._check_sends = extended.message_guard.check
        self._launcher = cross_device_utils.CollectiveReplicaLauncher(
            self._group_key, self.size, keys, self.device, self._options
        )

    def all_reduce_sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """Sums integers or floats `[n]`; the result has the same bits on all processes."""
        if self._is_small(tensor):
            return tf.reduce_sum(self.all_gather(tensor), axis=0)
        return self._launch(collective_ops.all_reduce_v2, tensor, merge_op="Add")

    def all_reduce_max(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the maxima of float32 `[n]`, for few numbers."""
        return tf.reduce_max(self.all_gather(tensor), axis=0)

    def all_gather(self, tensor: tf.Tensor) -> tf.Tensor:
        """Gathers integers or floats `[n]` of each process as `[size, n]` on all."""
        if self._is_small(tensor):
            return self.all_to_all(tf.repeat(tensor[tf.newaxis], self.size, axis=0))
        gathered = self._launch(collective_ops.all_gather_v2, tensor)
        # Not as int32, which TensorFlow reshapes in the memory of a GPU's host.
        gathered = tf.bitcast(gathered, tf.float32)
        shape = [self.size, *(-1 if n is None else n for n in tensor.shape)]
        return tf.bitcast(tf.reshape(gathered, shape), tensor.dtype)

    def all_to_all(self, tensor: tf.Tensor) -> tf.Tensor:
        """`[size, n]` -> `[size, n]`: row i goes to process i, whose row i comes back."""
        if tensor.shape.num_elements() == 0:
            # TensorFlow would end the process.
            return tensor
        return self._launch(collective_ops.all_to_all_v2, tensor)

    def _is_small(self, tensor):
        count = tensor.shape.num_elements()
        return count is not None and count * self.size <= _FEW

    def _launch(self, collective, tensor, **kwargs):
        self._check_sends()
        if context.executing_eagerly():
            key = self._launcher._next_instance_key()
            with places.at("an exchange"):
                return self._launch_now(collective, tensor, key, kwargs)
        key = self._keys.key(f"{collective.__name__} {kwargs}", tensor)
        launch = functools.partial(self._launch_now, collective, tensor, key, kwargs)
        result = self._traced.launched(tensor, launch)
        # GPUs must start collectives in the same order; on CPUs an order only delays.
        if not self.is_nccl:
            run_independently(result.op)
        return result

    def _launch_now(self, collective, tensor, key, kwargs):
        with tf.device(self.device):
            return collective(
                tensor,
                group_size=self.size,
                group_key=self._group_key,
                instance_key=key,
                communication_hint=self._options.implementation.value,
                timeout=self._options.timeout_seconds or 0,
                ordering_token=self._launcher._get_ordering_token() if self.is_nccl else None,
                **kwargs,
            )


def publish(key: str, value: str) -> None:
    """Publishes a str to the cluster. The first process keeps it; a key takes one value."""
    context.context().set_config_key_value(key, value)


def published(key: str, timeout_seconds: float) -> str | None:
    """Returns the str published under a key, or None after the timeout."""
    try:
        return context.context().get_config_key_value(key, max(1, round(1e3 * timeout_seconds)))
    except tf.errors.DeadlineExceededError:
        return None


def report_error(message: str) -> None:
    """Makes the exchanges of all processes of the cluster fail with this message."""
    # Fails before the cluster is formed and after it failed.
    with contextlib.suppress(tf.errors.OpError, ValueError):
        context.context().report_error_to_cluster(tf.errors.UNAVAILABLE, message)


# TCP may need 13 s to recover from a cut of 5 s in a link; TensorFlow's default is 10 s.
_HEARTBEAT_TIMEOUT_SECONDS = 25.0
# Processes have just met: one that has not started TensorFlow's server by then has ended.
_REGISTER_SECONDS = 120.0


@contextlib.contextmanager
def bounded_start(seconds: float) -> Iterator[None]:
    """Bounds how long processes that start in this context wait for each other, then and later.

    By default, a process waits an hour for peers, and continues without late peers.
    """
    current = context.context()
    stock = current.configure_coordination_service

    def configure(*args, **kwargs):
        stock(
            *args,
            **kwargs,
            cluster_register_timeout_in_ms=round(1e3 * min(seconds, _REGISTER_SECONDS)),
            heartbeat_timeout_in_ms=round(1e3 * _HEARTBEAT_TIMEOUT_SECONDS),
        )
        # From TensorFlow 2.21 on.
        fields = current.coordination_service.DESCRIPTOR.fields_by_name
        if "cluster_register_with_barrier" in fields:
            current.coordination_service.cluster_register_with_barrier = True

    current.configure_coordination_service = configure
    try:
        yield
    finally:
        del current.configure_coordination_service


def communication_options(
    communication: str, timeout_seconds: float | None = None
) -> tf.distribute.experimental.CommunicationOptions:
    """Returns TensorFlow's options for "ring", over gRPC, or "nccl"."""
    return collective_util.Options(
        implementation=CommunicationImplementation(communication.upper()),
        timeout_seconds=timeout_seconds,
    )

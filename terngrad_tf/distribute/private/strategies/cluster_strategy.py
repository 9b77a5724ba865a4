"""The strategy of a cluster: one process per machine, each with the same number of replicas."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any

from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    device_util,
    mirrored_strategy,
    values,
)
from tensorflow.python.distribute.collective_util import CommunicationImplementation
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce
from tensorflow.python.distribute.cross_device_utils import CollectiveKeys
from tensorflow.python.eager import context

from terngrad_tf.common.places import places
from terngrad_tf.distribute.private.collectives.collective_keys import StaticKeys, use_static_keys
from terngrad_tf.distribute.private.collectives.process_group import ProcessGroup, bounded_start
from terngrad_tf.distribute.private.collectives.traced_places import traced_places
from terngrad_tf.distribute.private.data.shared_data import SharedData
from terngrad_tf.distribute.private.replicas.devices import cluster_is_joined, local_tensors
from terngrad_tf.distribute.private.strategies.initial_values import InitialValues
from terngrad_tf.distribute.private.strategies.strategies import SharedVariableReplicas

if typing.TYPE_CHECKING:
    import tensorflow as tf

# More than TensorFlow's keys of one strategy.
_HOST_KEYS = 1000


class TernGradClusterExtended(
    SharedData, SharedVariableReplicas, collective_all_reduce_strategy.CollectiveAllReduceExtended
):
    """One of several processes, each with the same number of replicas.

    Our strategy is no `MultiWorkerMirroredStrategy`, to which the base class belongs: Keras 3 fails
    for its instances.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        devices: Sequence[str],
        num_replicas: int,
        options: tf.distribute.experimental.CommunicationOptions,
        gradient_ops: Any,
        start_timeout: float,
        make_equal: Callable[..., Any],
    ):
        self.gradient_ops = gradient_ops
        self.process_group = None
        self._relative_devices = devices
        self._initialize_replicas(num_replicas, len(devices))
        self.initial_values = InitialValues(make_equal, self.message_guard)
        if cluster_is_joined():
            # Do not restart the server: peers may wait for an earlier strategy, which watches them.
            self._std_server_started = True
            self._enable_check_health = False
        with bounded_start(start_timeout):
            super().__init__(
                strategy, cluster_resolver=cluster_resolver, communication_options=options
            )
        if options.implementation == CommunicationImplementation.RING and len(devices) == 1:
            self._exchange_on_hosts(options)
        self.static_keys = StaticKeys()
        self.traced_places = traced_places(self.host_device)
        for ops_ in {self._cross_device_ops, self._host_cross_device_ops}:
            for launcher in ops_._launchers:
                use_static_keys(
                    launcher, self.static_keys, self.traced_places, self.message_guard.check
                )
            _note_reductions(ops_)
        self.process_group = ProcessGroup(self) if self._num_workers > 1 else None

    def _exchange_on_hosts(self, options):
        """Runs all reductions on the hosts, with or without GPUs."""
        # Keys count a process's devices, which may differ between processes.
        self._collective_keys = CollectiveKeys(self._collective_key_base + _HOST_KEYS)
        self._cross_device_ops = self._host_cross_device_ops = CollectiveAllReduce(
            [self.host_device], self._num_workers, options, self._collective_keys
        )

    @property
    def is_chief(self) -> bool:
        return self._is_chief

    @property
    def host_device(self) -> str:
        """Returns the name of this process's CPU device."""
        return device_util.canonicalize(f"{self._worker_device}/device:CPU:0")

    def _create_components(self, next_creator, **kwargs):
        variable = super()._create_components(next_creator, **kwargs)
        # Replicas' own copies stay different.
        if (
            self._has_own_initial_values()
            and not self._one_for_each_replica
            and isinstance(variable, values.DistributedVariable)
        ):
            self.initial_values.add(variable)
        return variable

    def _get_variable_creator_initial_value(self, **kwargs):
        if self._has_own_initial_values():
            # The initial value of a single process, without the broadcast.
            base = mirrored_strategy.MirroredExtended
            return base._get_variable_creator_initial_value(self, **kwargs)
        return super()._get_variable_creator_initial_value(**kwargs)

    def _has_own_initial_values(self):
        # Functions initialize their variables after the trace.
        return self.process_group is not None and context.executing_eagerly()

    def _call_for_each_replica(self, fn, args, kwargs):
        call = functools.partial(super()._call_for_each_replica, fn, args, kwargs)
        if self.process_group is None or self._run_depth:
            return call()
        with self.initial_values.run(), self.traced_places.run(fn):
            return call()

    def _update(self, var, fn, args, kwargs, group):
        self.initial_values.use(var)
        return super()._update(var, fn, args, kwargs, group)

    def _initialize_local_devices(self, cluster_resolver, replica_device):
        # The stock method supports only one CPU per process.
        devices = tuple(f"{replica_device}{device}" for device in self._relative_devices)
        return devices, "GPU" if "GPU" in devices[0] else "CPU"

    def _get_cross_device_ops(self, value):
        # The stock method expects one value per replica.
        on_devices = len(local_tensors(value)) == len(self._devices)
        return self._cross_device_ops if on_devices else self._host_cross_device_ops


def _note_reductions(ops):
    """Notes reductions outside functions, for example of metrics on reading, in `places`."""

    def noted(function):
        def note(*args, **kwargs):
            if not context.executing_eagerly():
                return function(*args, **kwargs)
            with places.at("a reduction, such as that of a metric"):
                return function(*args, **kwargs)

        return note

    for name in ("reduce_implementation", "batch_reduce_implementation", "_gather_implementation"):
        setattr(ops, name, noted(getattr(ops, name)))

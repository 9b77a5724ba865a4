"""Strategies whose replicas stay equal: in one process, and in a cluster."""

import contextlib
import functools
import weakref

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx as autograph_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    cross_device_utils,
    distribute_lib,
    distribute_utils,
    input_lib,
    mirrored_run,
    mirrored_strategy,
    values,
)
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from terngrad_tf.distribute.private import batches, replicas
from terngrad_tf.distribute.private.collective_keys import StaticKeys, use_static_keys
from terngrad_tf.distribute.private.devices import cluster_is_joined, local_tensors, mirrored
from terngrad_tf.distribute.private.initial_values import InitialValues
from terngrad_tf.distribute.private.padding import PaddedReplicas
from terngrad_tf.distribute.private.process_group import ProcessGroup, bounded_start


class SharedVariableReplicas(PaddedReplicas):
    """Several replicas on each device, whose variables stay equal.

    Replica i runs on device i modulo the number of devices. All replicas of a device share one copy
    of the weights, of the optimizer's variables and of whatever else is written by all together.
    Variables that replicas write on their own have a copy for every replica:

    * metrics, which are summed when read;
    * the states of random generators;
    * batch-norm statistics, which Keras creates with aggregation "none": what a checkpoint or an
      evaluation sees would depend on who looks. Here every such floating-point variable that a
      replica function wrote is replaced by its mean over all replicas when the function ends. An
      exponential average is linear, so the mean of the averages is the average of the means.
    """

    def _initialize_equal_replicas(self, num_replicas, num_devices):
        self._device_of_replica = [replica % num_devices for replica in range(num_replicas)]
        self._written = {}
        self._run_depth = 0
        self._one_for_each_replica = False
        self._wrapped_functions = weakref.WeakKeyDictionary()
        self._initialize_padding()

    @property
    def worker_devices(self):
        return tuple(self._devices[device] for device in self._device_of_replica)

    @property
    def worker_devices_by_replica(self):
        return [[device] for device in self.worker_devices]

    def _create_variable(self, next_creator, **kwargs):
        # Optimizer slots are created beside their variable, one a device.
        is_slot = kwargs.pop("colocate_with", None) is not None
        on_read = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
        unsynchronized = (
            kwargs.get("aggregation", tf.VariableAggregation.NONE) == tf.VariableAggregation.NONE
        )
        is_own = self._one_for_each_replica
        if (
            on_read
            or is_own
            or (unsynchronized and kwargs.get("trainable") is False and not is_slot)
        ):
            devices, self._devices = self._devices, self.worker_devices
            try:
                variable = super()._create_variable(next_creator, **kwargs)
            finally:
                self._devices = devices
            is_statistic = not on_read and not is_own and variable.dtype.is_floating
            if on_read or is_statistic:
                self._guard(variable, is_statistic)
            return variable
        variable = super()._create_variable(next_creator, **kwargs)
        variable._values = tuple(variable._values[device] for device in self._device_of_replica)
        if unsynchronized:
            self._write_once(variable)
        return variable

    @contextlib.contextmanager
    def variables_of_replicas(self):
        """Each replica has its own copy of the variables that are created within."""
        self._one_for_each_replica = True
        try:
            yield
        finally:
            self._one_for_each_replica = False

    def _guard(self, variable, is_statistic):
        """Undoes what a replica without examples writes; notes written statistics."""
        update_replica = variable._update_replica

        def guarded_update(update_fn, value, **kwargs):
            if is_statistic:
                self._written[id(variable)] = variable
            empty = self.is_empty()
            if empty is None:
                return update_replica(update_fn, value, **kwargs)
            component = variable._get_on_device_or_primary()
            before = component.read_value()
            update_replica(update_fn, value, **kwargs)
            return component.assign(tf.where(empty, before, component.read_value()))

        variable._update_replica = guarded_update

    def _write_once(self, variable):
        """Lets the first replica write a variable that all share."""

        def update_once(update_fn, value, **kwargs):
            def merge(strategy, value):
                first = tf.nest.map_structure(lambda v: local_tensors(v)[0], value)
                return strategy.extended.update(variable, update_fn, args=(first,), kwargs=kwargs)

            return tf.distribute.get_replica_context().merge_call(merge, args=(value,))

        variable._update_replica = update_once

    def _call_for_each_replica(self, fn, args, kwargs):
        if isinstance(fn, polymorphic_function.Function):
            # Trace the averaging together with the function, or it would be missing from the
            # second call on.
            wrapped = self._wrapped_functions.get(fn)
            if wrapped is None:
                strategy = self._container_strategy()
                python_function = fn.python_function

                def traced(*args, **kwargs):
                    return strategy.extended.call_for_each_replica(python_function, args, kwargs)

                wrapped = self._wrapped_functions[fn] = fn._clone(python_function=traced)
            return wrapped(*args, **kwargs)
        self._run_depth += 1
        try:
            # Eager code runs in one thread a replica, as in every strategy of TensorFlow.
            call = mirrored_run.call_for_each_replica
            if not context.executing_eagerly() and not replicas.needs_own_traces((args, kwargs)):
                call = replicas.call_for_each_replica
                fn = autograph.tf_convert(fn, autograph_ctx.control_status_ctx())
            result = call(self._container_strategy(), fn, args, kwargs)
        finally:
            self._run_depth -= 1
            written, outermost = self._written, self._run_depth == 0
            if outermost:
                self._written = {}
        if outermost and written and self._num_replicas_in_sync > 1:
            self._assign_means(list(written.values()))
        return result

    def _assign_means(self, variables):
        components = list(zip(*(variable.values for variable in variables), strict=True))
        shares = self.shares_of_run or [None] * len(components)
        flat = []
        for device, local, share in zip(self.worker_devices, components, shares, strict=True):
            with tf.device(device):
                part = tf.concat([tf.reshape(tf.cast(v, tf.float32), [-1]) for v in local], 0)
                flat.append(part if share is None else part * share)
        with tf.device(self.worker_devices[0]):
            mean = tf.add_n(flat)
            if self.process_group is not None:
                mean = self.process_group.all_reduce_sum(mean)
            if self.shares_of_run is None:
                mean /= self._num_replicas_in_sync
        for device, local in zip(self.worker_devices, components, strict=True):
            with tf.device(device):
                parts = tf.split(mean, [v.shape.num_elements() for v in local])
                for variable, part in zip(local, parts, strict=True):
                    variable.assign(tf.cast(tf.reshape(part, variable.shape), variable.dtype))

    def _experimental_distribute_dataset(self, dataset, options):
        if _replicates_inputs(options):
            raise NotImplementedError(
                "InputReplicationMode.PER_REPLICA is only supported in "
                "`distribute_datasets_from_function`"
            )
        context_ = None if self.process_group is None else self._make_input_context()
        processes = 1 if self.process_group is None else self.process_group.size
        (process, _), *_ = self._input_workers._worker_device_pairs
        shared = len(self._devices) < len(self._device_of_replica)
        distributed_dataset = batches.ReplicaBatches if shared else input_lib.DistributedDataset
        return distributed_dataset(
            input_lib.InputWorkers([(process, self._devices)]),
            self._container_strategy(),
            dataset,
            num_replicas_in_sync=processes * len(self._devices),
            input_context=context_,
            options=options,
        )

    # Reductions add up the replicas of a device, then the devices as the base class does.

    def _reduce_to(self, reduce_op, value, destinations, options):
        def reduce(value):
            if not _is_per_replica(value):
                return super(SharedVariableReplicas, self)._reduce_to(
                    reduce_op, value, destinations, options
                )
            return self._reduce_all([value], reduce_op, options)[0]

        return tf.nest.map_structure(reduce, value)

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        return self._reduce_all([value for value, _ in value_destination_pairs], reduce_op, options)

    def _reduce_all(self, per_replica, reduce_op, options):
        if self.process_group is None and len(self._device_of_replica) > 1:
            # What is not distributed is the same for all, and counts once, as in stock strategies.
            distributed = [v for v in per_replica if isinstance(v, values.DistributedValues)]
            if len(distributed) < len(per_replica):
                reduced = iter(self._reduce_all(distributed, reduce_op, options))
                return [
                    next(reduced) if isinstance(value, values.DistributedValues) else value
                    for value in per_replica
                ]
        sums = [self._sum_by_device(value) for value in per_replica]
        if self.process_group is None and len(self._devices) == 1:
            reduced = [values.Mirrored(local) for local in sums]
        else:
            pairs = [(values.PerReplica(local),) * 2 for local in sums]
            reduced = super()._batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs, options)
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            count = self._num_replicas_in_sync
            reduced = [
                values.Mirrored(
                    [
                        cross_device_utils.divide_by_n_tensors_or_indexed_slices(v, count)
                        for v in value.values
                    ]
                )
                for value in reduced
            ]
        return [self._to_replicas(value) for value in reduced]

    def _sum_by_device(self, value):
        sums = []
        for index, device in enumerate(self._devices):
            with tf.device(device):
                mine = [
                    v
                    for v, d in zip(
                        local_tensors(value, len(self._device_of_replica)),
                        self._device_of_replica,
                        strict=True,
                    )
                    if d == index
                ]
                sums.append(cross_device_utils.aggregate_tensors_or_indexed_slices(mine))
        return sums

    def _to_replicas(self, by_device):
        """One value a device to one a replica."""
        return mirrored([local_tensors(by_device)[device] for device in self._device_of_replica])

    def _broadcast_to(self, tensor, destinations):
        if isinstance(tensor, float | int) or len(self._devices) == 1:
            return tensor
        return self._to_replicas(super()._broadcast_to(tensor, None))

    def _gather_to_implementation(self, value, destinations, axis, options):
        if not isinstance(value, values.DistributedValues):
            value = values.PerReplica([value])
        _check_gathered([part.shape for part in value.values], axis)
        with tf.device(self._devices[0]):
            rows = tf.concat(list(value.values), axis)
        if self.process_group is None:
            return rows
        # Only the first device has something to send.
        nothing = tf.gather(rows, tf.zeros([0], tf.int32), axis=axis)
        parts = [rows] + [nothing] * (len(self._devices) - 1)
        return super()._gather_to_implementation(
            values.PerReplica(parts), self._devices[0], axis, options
        )

    def _update(self, var, fn, args, kwargs, group):
        if len({id(component) for component in var.values}) < len(var.values):
            args, kwargs = self._one_a_device((args, kwargs), var.name)
        updates = {}
        for replica, component in enumerate(var.values):
            if id(component) not in updates:
                with (
                    tf.device(component.device),
                    distribute_lib.UpdateContext(replica),
                    tf.name_scope(f"update_{replica}"),
                ):
                    updates[id(component)] = fn(
                        component,
                        *distribute_utils.select_replica(replica, args),
                        **distribute_utils.select_replica(replica, kwargs),
                    )
        by_replica = [updates[id(component)] for component in var.values]
        return distribute_utils.update_regroup(self, by_replica, group)

    def _update_non_slot(self, colocate_with, fn, args, kwargs, group):
        if len(self._devices) < len(self._device_of_replica):
            args, kwargs = self._one_a_device((args, kwargs), "`update_non_slot`")
        return super()._update_non_slot(colocate_with, fn, args, kwargs, group)

    def agreed(self, value):
        """One value a device, of a per-replica value that is the same for all its replicas."""
        if not _is_per_replica(value):
            return value
        by_device = [
            value.values[self._device_of_replica.index(d)] for d in self._device_of_replica
        ]
        return values.Mirrored(by_device)

    def _one_a_device(self, structure, name):
        """Per-replica values to values that the replicas of a device share.

        Raises (when it runs): the replicas of a device have different values. `tf.distribute`
        would give each replica's copy its own; here they have one.
        """
        message = (
            f"`extended.update` of {name} got values that differ between replicas, which share one "
            "copy of it. Reduce them first, with `replica_context.all_reduce` or "
            "`extended.reduce_to`"
        )

        def one(value):
            if isinstance(value, values.DistributedVariable) or not _is_per_replica(value):
                return value
            if not all(isinstance(v, tf.Tensor) for v in value.values):
                raise ValueError(f"{message}. Received: {value}")
            checks = []
            for replica, device in enumerate(self._device_of_replica):
                first = value.values[self._device_of_replica.index(device)]
                other = value.values[replica]
                if other is not first:
                    with tf.device(self._devices[device]):
                        checks.append(_assert_same(first, other, message))
            with tf.control_dependencies([check for check in checks if check is not None]):
                return tf.nest.map_structure(tf.identity, self.agreed(value))

        return tf.nest.map_structure(one, structure)


class TernGradLocalExtended(SharedVariableReplicas, mirrored_strategy.MirroredExtended):
    """All replicas in this process."""

    process_group = None
    is_chief = True

    def _input_workers_with_options(self, options=None):
        if not _replicates_inputs(options):
            return super()._input_workers_with_options(options)
        on_device = options.experimental_place_dataset_on_device
        return input_lib.InputWorkers(
            [(d if on_device else "/device:CPU:0", (d,)) for d in self.worker_devices]
        )

    def __init__(self, strategy, devices, num_replicas, gradient_ops):
        self.gradient_ops = gradient_ops
        self._initialize_equal_replicas(num_replicas, len(devices))
        single = len(devices) == 1
        super().__init__(
            strategy,
            devices=devices,
            cross_device_ops=tf.distribute.ReductionToOneDevice() if single else None,
        )
        ((process, _),) = self._input_workers_devices
        self._input_workers_devices = ((process, self.worker_devices),)

    @property
    def _num_replicas_in_sync(self):
        return len(self._device_of_replica)


class TernGradClusterExtended(
    SharedVariableReplicas, collective_all_reduce_strategy.CollectiveAllReduceExtended
):
    """One process of several, each with the same number of replicas.

    The base class of `MultiWorkerMirroredStrategy`. Keras asks for instances of that strategy in
    places that fail under Keras 3, so ours is not one.
    """

    def __init__(
        self,
        strategy,
        cluster_resolver,
        devices,
        num_replicas,
        options,
        gradient_ops,
        start_timeout,
        make_equal,
    ):
        self.gradient_ops = gradient_ops
        self.process_group = None
        self.initial_values = InitialValues(make_equal)
        self._relative_devices = devices
        self._initialize_equal_replicas(num_replicas, len(devices))
        if cluster_is_joined():
            # The stock method would start the process's server anew, under the collectives of an
            # earlier strategy that peers may still wait for. Its peers are watched already.
            self._std_server_started = True
            self._enable_check_health = False
        with bounded_start(start_timeout):
            super().__init__(
                strategy, cluster_resolver=cluster_resolver, communication_options=options
            )
        self.static_keys = StaticKeys()
        for ops_ in (self._cross_device_ops, self._host_cross_device_ops):
            for launcher in ops_._launchers:
                use_static_keys(launcher, self.static_keys)
        self.process_group = ProcessGroup(self) if self._num_workers > 1 else None

    @property
    def is_chief(self):
        return self._is_chief

    def _create_variable(self, next_creator, **kwargs):
        variable = super()._create_variable(next_creator, **kwargs)
        if self._has_own_initial_values() and isinstance(variable, values.DistributedVariable):
            self.initial_values.add(variable)
        return variable

    def _get_variable_creator_initial_value(self, **kwargs):
        stock = super()
        if self._has_own_initial_values():
            # That of one process, without the broadcast.
            stock = super(collective_all_reduce_strategy.CollectiveAllReduceExtended, self)
        return stock._get_variable_creator_initial_value(**kwargs)

    def _has_own_initial_values(self):
        # A function that is being traced initializes its variables after the trace.
        return self.process_group is not None and context.executing_eagerly()

    def _call_for_each_replica(self, fn, args, kwargs):
        call = functools.partial(super()._call_for_each_replica, fn, args, kwargs)
        if self.process_group is None or self._run_depth:
            return call()
        with self.initial_values.run():
            return call()

    def _update(self, var, fn, args, kwargs, group):
        self.initial_values.use(var)
        return super()._update(var, fn, args, kwargs, group)

    def _initialize_local_devices(self, cluster_resolver, replica_device):
        # The stock method knows of one CPU a process only.
        devices = tuple(f"{replica_device}{device}" for device in self._relative_devices)
        return devices, "GPU" if "GPU" in devices[0] else "CPU"

    def _get_cross_device_ops(self, value):
        # The stock method expects one value a replica where there is one a device.
        count = len(value.values) if isinstance(value, values.DistributedValues) else 1
        on_devices = count == len(self._devices)
        return self._cross_device_ops if on_devices else self._host_cross_device_ops


def _check_gathered(shapes, axis):
    """Raises ValueError where tensors of these shapes cannot be concatenated."""
    known = [shape.as_list() for shape in shapes if shape.rank is not None]
    ranks = {len(shape) for shape in known}
    fits = 0 not in ranks and len(ranks) <= 1
    for dimension in range(*ranks) if fits else ():
        sizes = {shape[dimension] for shape in known} - {None}
        fits &= len(sizes) <= 1 or dimension == axis % len(known[0])
    if not fits:
        raise ValueError(
            "Values can be gathered whose rank is 1 or more and whose shapes differ along `axis`"
            " only (`tf.expand_dims` gives scalars an axis). Received:"
            f" axis={axis}, shapes={known}"
        )


def _replicates_inputs(options):
    mode = tf.distribute.InputReplicationMode.PER_REPLICA
    return options is not None and options.experimental_replication_mode == mode


def _assert_same(first, other, message):
    if not first.shape.is_compatible_with(other.shape) or first.dtype != other.dtype:
        raise ValueError(f"{message}. Received: {first} and {other}")
    same = tf.equal(first, other)
    if first.dtype.is_floating:
        same |= tf.math.is_nan(first) & tf.math.is_nan(other)
    return tf.debugging.Assert(tf.reduce_all(same), [message])


def _is_per_replica(value):
    return isinstance(value, values.DistributedValues) and not distribute_utils.is_mirrored(value)

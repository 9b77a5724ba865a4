"""Strategies whose workers stay equal: on one host, and in a cluster."""

import functools
import itertools
import threading
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
    input_util,
    mirrored_run,
    mirrored_strategy,
    values,
)
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from terngrad_tf.distribute.private import workers
from terngrad_tf.distribute.private.devices import local_tensors, mirrored
from terngrad_tf.distribute.private.hosts import HostGroup, bounded_start, with_static_keys


class EqualReplicas:
    """Several workers on each device, whose variables stay equal.

    Worker i runs on device i modulo the number of devices. All workers of a device share one copy
    of the weights, of the optimizer's variables and of whatever else is written by all together.
    Variables that replicas write on their own have a copy for every worker:

    * metrics, which are summed when read;
    * the states of random generators;
    * batch-norm statistics, which Keras creates with aggregation "none": what a checkpoint or an
      evaluation sees would depend on who looks. Here every such floating-point variable that a
      replica function wrote is replaced by its mean over all replicas when the function ends. An
      exponential average is linear, so the mean of the averages is the average of the means.
    """

    def _initialize_equal_replicas(self, num_workers, num_devices):
        self._device_of_worker = [worker % num_devices for worker in range(num_workers)]
        self._written = {}
        self._run_depth = 0
        self._wrapped_functions = weakref.WeakKeyDictionary()
        self._step = threading.local()

    @property
    def worker_devices(self):
        return tuple(self._devices[device] for device in self._device_of_worker)

    @property
    def worker_devices_by_replica(self):
        return [[device] for device in self.worker_devices]

    def is_empty(self):
        """Whether the current replica has no examples: a boolean tensor, or None for no."""
        return getattr(self._step, "empty", None)

    def on_examples(self, fn, returns_rows):
        """`fn` of a batch, to run on replicas that may have no examples.

        The last batch of an epoch may hold fewer examples than there are replicas. On an empty
        batch several CPU kernels abort, return wrong shapes or, in the backward pass, NaN. So `fn`
        gets one example of zeros instead, and what it writes to metrics and statistics is undone.

        Args:
            fn: a step of Keras, a function of structures of tensors with a batch axis.
            returns_rows: whether its results have a batch axis too; rows of zeros are cut.
        """

        @functools.wraps(fn)
        @tf.autograph.experimental.do_not_convert
        def on_examples(*args):
            args, self._step.empty = _fill_empty(args)
            try:
                results = fn(*args)
                if returns_rows and self._step.empty is not None:
                    results = _drop_filled(results, self._step.empty)
                return results
            finally:
                self._step.empty = None

        return on_examples

    def _create_variable(self, next_creator, **kwargs):
        # Optimizer slots are created beside their variable, one a device.
        is_slot = kwargs.pop("colocate_with", None) is not None
        on_read = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
        unsynchronized = (
            kwargs.get("aggregation", tf.VariableAggregation.NONE) == tf.VariableAggregation.NONE
        )
        if on_read or (unsynchronized and kwargs.get("trainable") is False and not is_slot):
            devices, self._devices = self._devices, self.worker_devices
            try:
                variable = super()._create_variable(next_creator, **kwargs)
            finally:
                self._devices = devices
            is_statistic = not on_read and variable.dtype.is_floating
            if on_read or is_statistic:
                self._guard(variable, is_statistic)
            return variable
        variable = super()._create_variable(next_creator, **kwargs)
        variable._values = tuple(variable._values[device] for device in self._device_of_worker)
        if unsynchronized:
            self._write_once(variable)
        return variable

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
        """Lets the first worker write a variable that all share."""

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
        if len(self._devices) < len(self._device_of_worker):
            args, kwargs = self._split_batches((args, kwargs))
        self._run_depth += 1
        try:
            # Eager code runs in one thread a worker, as in every strategy of TensorFlow.
            call = mirrored_run.call_for_each_replica
            if not context.executing_eagerly():
                call = workers.call_for_each_worker
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
        flat = []
        for device, local in zip(self.worker_devices, components, strict=True):
            with tf.device(device):
                flat.append(tf.concat([tf.reshape(tf.cast(v, tf.float32), [-1]) for v in local], 0))
        with tf.device(self.worker_devices[0]):
            total = tf.add_n(flat)
            if self.host_group is not None:
                total = self.host_group.all_reduce_sum(total)
            mean = total / self._num_replicas_in_sync
        for device, local in zip(self.worker_devices, components, strict=True):
            with tf.device(device):
                parts = tf.split(mean, [v.shape.num_elements() for v in local])
                for variable, part in zip(local, parts, strict=True):
                    variable.assign(tf.cast(tf.reshape(part, variable.shape), variable.dtype))

    def _experimental_distribute_dataset(self, dataset, options):
        """Batches of a device, which `_call_for_each_replica` splits among its workers.

        The stock method would give each worker an iterator of its own.
        """
        context_ = None if self.host_group is None else self._make_input_context()
        hosts = 1 if self.host_group is None else self.host_group.size
        (host, _), *_ = self._input_workers._worker_device_pairs
        distributed = input_util.get_distributed_dataset(
            dataset,
            input_lib.InputWorkers([(host, self._devices)]),
            self._container_strategy(),
            num_replicas_in_sync=hosts * len(self._devices),
            input_context=context_,
            options=options,
        )

        def of_devices(spec):
            if not isinstance(spec, values.PerReplicaSpec):
                return spec
            return values.PerReplicaSpec(*spec._value_specs[: len(self._devices)])

        distributed._element_spec = tf.nest.map_structure(of_devices, distributed._element_spec)
        return distributed

    def _split_batches(self, structure):
        """Values of a device to values of its workers, as equal in length as can be."""
        num_workers, num_devices = len(self._device_of_worker), len(self._devices)

        def split(value):
            if not isinstance(value, values.PerReplica) or len(value.values) != num_devices:
                return value
            parts = [None] * num_workers
            for index, (device, batch) in enumerate(zip(self._devices, value.values, strict=True)):
                mine = [w for w, d in enumerate(self._device_of_worker) if d == index]
                with tf.device(device):
                    for worker, part in zip(mine, _split_rows(batch, len(mine)), strict=True):
                        parts[worker] = part
            return values.PerReplica(parts)

        return tf.nest.map_structure(split, structure)

    # Reductions add up the workers of a device, then the devices as the base class does.

    def _reduce_to(self, reduce_op, value, destinations, options):
        def reduce(value):
            if not _is_per_worker(value):
                return super(EqualReplicas, self)._reduce_to(
                    reduce_op, value, destinations, options
                )
            return self._reduce_all([value], reduce_op, options)[0]

        return tf.nest.map_structure(reduce, value)

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        return self._reduce_all([value for value, _ in value_destination_pairs], reduce_op, options)

    def _reduce_all(self, per_worker, reduce_op, options):
        sums = [self._sum_by_device(value) for value in per_worker]
        if self.host_group is None and len(self._devices) == 1:
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
        return [self._to_workers(value) for value in reduced]

    def _sum_by_device(self, value):
        sums = []
        for index, device in enumerate(self._devices):
            with tf.device(device):
                mine = [
                    v
                    for v, d in zip(
                        local_tensors(value, len(self._device_of_worker)),
                        self._device_of_worker,
                        strict=True,
                    )
                    if d == index
                ]
                sums.append(cross_device_utils.aggregate_tensors_or_indexed_slices(mine))
        return sums

    def _to_workers(self, by_device):
        """One value a device to one a worker."""
        return mirrored([local_tensors(by_device)[device] for device in self._device_of_worker])

    def _broadcast_to(self, tensor, destinations):
        if isinstance(tensor, float | int) or len(self._devices) == 1:
            return tensor
        return self._to_workers(super()._broadcast_to(tensor, None))

    def _gather_to_implementation(self, value, destinations, axis, options):
        if not _is_per_worker(value):
            value = values.PerReplica([value])
        with tf.device(self._devices[0]):
            rows = tf.concat(list(value.values), axis)
        if self.host_group is None:
            return rows
        # Only the first device has something to send.
        nothing = tf.gather(rows, tf.zeros([0], tf.int32), axis=axis)
        parts = [rows] + [nothing] * (len(self._devices) - 1)
        return super()._gather_to_implementation(
            values.PerReplica(parts), self._devices[0], axis, options
        )

    def _update(self, var, fn, args, kwargs, group):
        updates = {}
        for worker, component in enumerate(var.values):
            if id(component) not in updates:
                with (
                    tf.device(component.device),
                    distribute_lib.UpdateContext(worker),
                    tf.name_scope(f"update_{worker}"),
                ):
                    updates[id(component)] = fn(
                        component,
                        *distribute_utils.select_replica(worker, args),
                        **distribute_utils.select_replica(worker, kwargs),
                    )
        by_worker = [updates[id(component)] for component in var.values]
        return distribute_utils.update_regroup(self, by_worker, group)


class TernGradLocalExtended(EqualReplicas, mirrored_strategy.MirroredExtended):
    """All workers in this process."""

    host_group = None
    is_chief = True

    def __init__(self, strategy, devices, num_workers, gradient_ops):
        self.gradient_ops = gradient_ops
        self._initialize_equal_replicas(num_workers, len(devices))
        single = len(devices) == 1
        super().__init__(
            strategy,
            devices=devices,
            cross_device_ops=tf.distribute.ReductionToOneDevice() if single else None,
        )
        ((host, _),) = self._input_workers_devices
        self._input_workers_devices = ((host, self.worker_devices),)

    @property
    def _num_replicas_in_sync(self):
        return len(self._device_of_worker)


class TernGradClusterExtended(
    EqualReplicas, collective_all_reduce_strategy.CollectiveAllReduceExtended
):
    """One process a host, each with the same number of workers.

    The base class of `MultiWorkerMirroredStrategy`. Keras asks for instances of that strategy in
    places that fail under Keras 3, so ours is not one.
    """

    def __init__(
        self,
        strategy,
        cluster_resolver,
        devices,
        num_workers,
        options,
        gradient_ops,
        start_timeout,
    ):
        self.gradient_ops = gradient_ops
        self.host_group = None
        self._relative_devices = devices
        self._initialize_equal_replicas(num_workers, len(devices))
        if context.context()._collective_ops_server_def is not None:
            # The stock method would start the process's server anew, under the collectives of an
            # earlier strategy that peers may still wait for. Its peers are watched already.
            self._std_server_started = True
            self._enable_check_health = False
        with bounded_start(start_timeout):
            super().__init__(
                strategy, cluster_resolver=cluster_resolver, communication_options=options
            )
        for ops_ in (self._cross_device_ops, self._host_cross_device_ops):
            for launcher in ops_._launchers:
                with_static_keys(launcher)
        self.host_group = HostGroup(self) if self._num_workers > 1 else None

    @property
    def is_chief(self):
        return self._is_chief

    def _initialize_local_devices(self, cluster_resolver, worker_device):
        # The stock method knows of one CPU a host only.
        devices = tuple(f"{worker_device}{device}" for device in self._relative_devices)
        return devices, "GPU" if "GPU" in devices[0] else "CPU"

    def _get_cross_device_ops(self, value):
        # The stock method expects one value a worker where there is one a device.
        count = len(value.values) if isinstance(value, values.DistributedValues) else 1
        on_devices = count == len(self._devices)
        return self._cross_device_ops if on_devices else self._host_cross_device_ops


def _split_rows(batch, count):
    """A batch (dense, ragged or sparse) in `count` parts; the first may be longer by a row."""
    if isinstance(batch, tf.RaggedTensor):
        rows = batch.nrows()
    elif isinstance(batch, tf.SparseTensor):
        rows = batch.dense_shape[0]
    elif not isinstance(batch, tf.Tensor) or not batch.shape.rank:
        return [batch] * count
    else:
        rows = batch.shape[0] if batch.shape[0] is not None else tf.shape(batch)[0]
    minimum = min if isinstance(rows, int) else tf.minimum
    bounds = [k * (rows // count) + minimum(rows % count, k) for k in range(count + 1)]
    parts = []
    for first, last in itertools.pairwise(bounds):
        if isinstance(batch, tf.SparseTensor):
            rest = batch.dense_shape[1:]
            parts.append(
                tf.sparse.slice(
                    batch,
                    tf.concat([[first], tf.zeros_like(rest)], 0),
                    tf.concat([[last - first], rest], 0),
                )
            )
        else:
            parts.append(batch[first:last])
    return parts


def _is_per_worker(value):
    return isinstance(value, values.DistributedValues) and not distribute_utils.is_mirrored(value)


def _fill_empty(args):
    """Gives a replica without examples one of zeros, and says whether it did.

    Args:
        args: arguments of a step, structures of tensors with a batch axis.

    Returns:
        Tuple of the filled structure and a boolean tensor, true where there were no examples; None
        instead of the tensor where that cannot happen.
    """
    empty = None

    def one_of_zeros(tensor):
        zeros = tf.zeros(tf.concat([[1], tf.shape(tensor)[1:]], 0), tensor.dtype)
        return tf.ensure_shape(zeros, [None, *tensor.shape[1:]])

    def fill(tensor):
        nonlocal empty
        if not isinstance(tensor, tf.Tensor) or not tensor.shape.rank or tensor.shape[0]:
            return tensor
        is_empty = tf.equal(tf.shape(tensor)[0], 0)
        empty = is_empty if empty is None else empty
        return tf.cond(is_empty, lambda: one_of_zeros(tensor), lambda: tensor)

    return tf.nest.map_structure(fill, args), empty


def _drop_filled(results, empty):
    """Cuts the rows that belong to `_fill_empty` from results."""
    return tf.nest.map_structure(lambda v: v[: tf.where(empty, 0, tf.shape(v)[0])], results)

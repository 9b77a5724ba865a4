"""Every use of TensorFlow's and Keras' private modules, each with the reason.

Nothing else in the package may import `tensorflow.python.*` or `keras.src.*` (a test enforces it).
`tests/distribute/private_test.py` pins each name used here, so that a release that moves one fails
there, with its name, and not inside a training step.

What is needed, and why no public way exists:

* Strategies for local and clustered devices: `tf.distribute` has no public base class to build on.
* Collectives beyond all-reduce sum (max, all-gather of equal shapes, all-to-all) have no public op.
* Keras optimizers reduce gradients in a private method; it is the only place where gradients can be
  told from metrics, losses and batch-norm moments, which use the same `all_reduce`.
* Gaps of Keras 3 under `tf.distribute`: see `install_keras_hooks`.
"""

import contextlib
import functools
import itertools
import threading
import weakref

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import core as keras_core
from keras.src.backend.tensorflow import optimizer as keras_tf_optimizer
from keras.src.backend.tensorflow import trainer as keras_tf_trainer
from keras.src.optimizers import base_optimizer as keras_base_optimizer
from tensorflow.python.autograph.core import ag_ctx as autograph_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    collective_util,
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
from tensorflow.python.framework import ops
from tensorflow.python.ops import collective_ops, control_flow_util

from terngrad_tf.distribute import private_replicas

# --------------------------------------------------------------------------------------------------
# Devices and contexts
# --------------------------------------------------------------------------------------------------


def devices_are_initialized():
    """Whether TensorFlow has fixed its devices (after which none can be added)."""
    # The public API only tells by raising from a call that would change the configuration.
    return context.context()._initialized


def in_xla_context():
    """Whether the graph being traced is compiled by XLA (`jit_compile=True`)."""
    return control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph())


def mirrored(tensors):
    """Groups one tensor a local device into a value that `select_replica` takes apart again."""
    return distribute_utils.regroup(tuple(tensors), wrap_class=values.Mirrored)


def local_tensors(value, count=1):
    """The component of each of `count` local replicas, in replica order."""
    return value.values if isinstance(value, values.DistributedValues) else (value,) * count


class ExactCrossDeviceOps(tf.distribute.CrossDeviceOps):
    """Reduces as the current strategy would by default.

    A stock strategy reduces with the op it is given only, so an op that treats gradients specially
    must be able to do everything else, and the base class declares half of that privately.
    """

    def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
        return _stock_ops().reduce_implementation(
            reduce_op, per_replica_value, destinations, options
        )

    def batch_reduce_implementation(self, reduce_op, value_destination_pairs, options):
        return _stock_ops().batch_reduce_implementation(reduce_op, value_destination_pairs, options)

    def broadcast_implementation(self, tensor, destinations):
        return _stock_ops().broadcast_implementation(tensor, destinations)

    def _gather_implementation(self, per_replica_value, destinations, axis, options):
        return _stock_ops()._gather_implementation(per_replica_value, destinations, axis, options)

    def _all_reduce(self, reduce_op, value, replica_id, options):
        return _stock_ops()._all_reduce(reduce_op, value, replica_id, options)


def _stock_ops():
    return tf.distribute.get_strategy().extended._collective_ops


def gradient_ops(strategy, op_class):
    """The `op_class` instance that `strategy` reduces gradients with, or None."""
    extended = strategy.extended
    if isinstance(extended, _EqualReplicas):
        return extended.gradient_ops
    op = getattr(extended, "_cross_device_ops", None)
    return op if isinstance(op, op_class) else None


# --------------------------------------------------------------------------------------------------
# Collectives between hosts
# --------------------------------------------------------------------------------------------------


class HostGroup:
    """Collectives with one member a host: the first local device of each.

    All tensors must have the same static shape and dtype on every host.
    """

    def __init__(self, extended):
        self.size = extended._num_workers
        self.rank = extended._id_in_cluster
        self.device = extended.worker_devices[0]
        keys = extended._collective_keys
        self._group_key = keys.get_group_key([self.device])
        self._options = extended._communication_options
        self._launcher = _with_static_keys(
            cross_device_utils.CollectiveReplicaLauncher(
                self._group_key, self.size, keys, self.device, self._options
            )
        )

    def all_reduce_sum(self, tensor):
        return self._launch(collective_ops.all_reduce_v2, tensor, merge_op="Add")

    def all_reduce_max(self, tensor):
        return self._launch(collective_ops.all_reduce_v2, tensor, merge_op="Max")

    def all_gather(self, tensor):
        """int32 or float32 `[n]` on each host -> `[size, n]` on all."""
        gathered = self._launch(collective_ops.all_gather_v2, tensor)
        return tf.reshape(gathered, [self.size, *tensor.shape])

    def all_to_all(self, tensor):
        """`[size, n]` -> `[size, n]`: row i goes to host i, row i of the result is from host i."""
        return self._launch(collective_ops.all_to_all_v2, tensor)

    def _launch(self, collective, tensor, **kwargs):
        with tf.device(self.device):
            # Collectives on GPUs must start in the same order everywhere; on CPUs an order would
            # only keep a late bucket from being sent while an early one is on its way.
            token = self._launcher._get_ordering_token() if "GPU" in self.device else None
            return collective(
                tensor,
                group_size=self.size,
                group_key=self._group_key,
                instance_key=self._launcher._next_instance_key(),
                communication_hint=self._options.implementation.value,
                timeout=self._options.timeout_seconds or 0,
                ordering_token=token,
                **kwargs,
            )


def publish(key, value):
    """Gives a str to all processes of the cluster, kept by the first; a key takes one value."""
    context.context().set_config_key_value(key, value)


def published(key, timeout_seconds):
    """The str that a process of the cluster published; None where none did within the timeout."""
    try:
        return context.context().get_config_key_value(key, max(1, round(1e3 * timeout_seconds)))
    except tf.errors.DeadlineExceededError:
        return None


def report_error(message):
    """Lets the exchanges of all processes of the cluster fail with this message."""
    # Nobody can be told before the cluster stands, or after it fell.
    with contextlib.suppress(tf.errors.OpError, ValueError):
        context.context().report_error_to_cluster(tf.errors.UNAVAILABLE, message)


@contextlib.contextmanager
def _start_timeout(seconds):
    """Bounds how long the processes that start within wait for each other.

    Left alone, a process waits an hour for peers, and goes on without those that are late to name
    their devices.
    """
    current = context.context()
    stock = current.configure_coordination_service

    def configure(*args, **kwargs):
        stock(*args, **kwargs, cluster_register_timeout_in_ms=round(1e3 * seconds))
        current.coordination_service.cluster_register_with_barrier = True

    current.configure_coordination_service = configure
    try:
        yield
    finally:
        del current.configure_coordination_service


def _with_static_keys(launcher):
    """Gives collectives their key when they are traced, not when they are called.

    A key that is fed at call time does not reach a function called inside `tf.while_loop`, which is
    what Keras builds for `steps_per_execution > 1`. All processes trace the same program.
    """
    launcher._use_unique_instance_key = lambda: False
    return launcher


# --------------------------------------------------------------------------------------------------
# Strategies
# --------------------------------------------------------------------------------------------------


class _EqualReplicas:
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
                call = private_replicas.call_for_each_worker
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
                return super(_EqualReplicas, self)._reduce_to(
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


class TernGradLocalExtended(_EqualReplicas, mirrored_strategy.MirroredExtended):
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
    _EqualReplicas, collective_all_reduce_strategy.CollectiveAllReduceExtended
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
        with _start_timeout(start_timeout):
            super().__init__(
                strategy, cluster_resolver=cluster_resolver, communication_options=options
            )
        for ops_ in (self._cross_device_ops, self._host_cross_device_ops):
            for launcher in ops_._launchers:
                _with_static_keys(launcher)
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


def stop_tuning_device_datasets():
    """Turns tf.data's autotuning off in the buffers that feed each device, once a process.

    There is nothing to tune in a buffer of one element, but its tuning thread sleeps up to a minute
    between looks, and the end of `fit` and `evaluate` waits for it.
    """
    stock = multi_device_iterator_ops._create_device_dataset
    if getattr(stock, "without_tuning", False):
        return
    options = tf.data.Options()
    options.autotune.enabled = False

    def create_device_dataset(*args, **kwargs):
        return stock(*args, **kwargs).with_options(options)

    create_device_dataset.without_tuning = True
    multi_device_iterator_ops._create_device_dataset = create_device_dataset


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


def communication_options(timeout_seconds=None):
    """Rings over gRPC for CPUs, NCCL for GPUs."""
    implementation = collective_util.CommunicationImplementation.RING
    if tf.config.list_physical_devices("GPU"):
        implementation = collective_util.CommunicationImplementation.NCCL
    return collective_util.Options(implementation=implementation, timeout_seconds=timeout_seconds)


# --------------------------------------------------------------------------------------------------
# Keras
# --------------------------------------------------------------------------------------------------

# A prime far from the distances between seeds that people choose.
_SEED_STRIDE = 1_000_000_007

_hooks = threading.local()
_hooks_installed = False


def install_keras_hooks(op_class):
    """Wraps the Keras functions below, once a process. Other strategies are left as they are.

    1. `TFOptimizer._all_reduce_sum_gradients`: under a strategy whose gradients `op_class` reduces,
       hands it the gradients with their variables and the optimizer's step.
    2. `LossScaleOptimizer.check_finite`: Keras asks one replica whether *its* gradients are finite.
       Where another replica overflows, float gradients would poison the weights, and processes that
       disagree would wait for each other for ever. All replicas decide together here.
    3. `keras.ops.cond` inside an optimizer's update (gradient accumulation, EMA overwriting):
       a reduction under `tf.cond` must be traced by all replicas together.
    4. `reduce_per_replica`: Keras gathers `predict`'s outputs from other processes for
       `MultiWorkerMirroredStrategy` only, and shows callbacks the metrics of the process's own
       replicas. A callback that stops training on one process (`TerminateOnNaN`) would leave the
       others waiting for it.
    5. `Trainer._maybe_symbolic_build`: Keras averages the first batch over all replicas to learn
       its shape. That fails where shards differ in size, and moves the batch over the network.
    6. `SeedGenerator.next`: Keras' random state knows no replica, so dropout would draw the same
       mask for every worker's examples.
    """
    global _hooks_installed
    if _hooks_installed:
        return
    _hooks_installed = True
    _hook_gradients(op_class)
    _hook_check_finite(op_class)
    _hook_cond(op_class)
    _hook_predict()
    _hook_symbolic_build()
    _hook_seeds()


def _active_op(op_class):
    """The op to use in this replica context, or None."""
    replica_context = tf.distribute.get_replica_context()
    if replica_context is None:
        return None
    strategy = replica_context.strategy
    if strategy.num_replicas_in_sync == 1 and not isinstance(strategy.extended, _EqualReplicas):
        return None
    return gradient_ops(strategy, op_class)


def _without_examples():
    extended = tf.distribute.get_strategy().extended
    return extended.is_empty() if isinstance(extended, _EqualReplicas) else None


def replica_is_empty():
    """Whether the current replica computes on filled-up data: a boolean tensor, or None for no."""
    return _without_examples()


def sum_gradients(optimizer, gradients, variables):
    """Sums gradients over replicas as Keras optimizers do it; in replica context.

    Keras offers this as a part of `apply` only, which also updates the variables.
    """
    return [
        g for g, _ in optimizer._all_reduce_sum_gradients(zip(gradients, variables, strict=True))
    ]


def _hook_gradients(op_class):
    stock = keras_tf_optimizer.TFOptimizer._all_reduce_sum_gradients

    def _all_reduce_sum_gradients(self, grads_and_vars):
        op = _active_op(op_class)
        if op is None:
            return stock(self, grads_and_vars)
        op.check_context()
        grads_and_vars = list(grads_and_vars)
        kept = keras_tf_optimizer.filter_empty_gradients(grads_and_vars)
        indices = [self._get_variable_index(variable) for _, variable in kept]
        paths = [self._trainable_variables[index].path for index in indices]

        empty = _without_examples()
        gradients = [g for g, _ in kept]
        if empty is not None:
            gradients = [
                g if isinstance(g, tf.IndexedSlices) else tf.where(empty, tf.zeros_like(g), g)
                for g in gradients
            ]

        def merge(strategy, gradients, scales, step):
            return op.reduce_gradients(strategy, gradients, scales, paths, indices, step)

        reduced = iter(
            tf.distribute.get_replica_context().merge_call(
                merge,
                args=(
                    gradients,
                    op.local_scales(gradients, paths),
                    tf.convert_to_tensor(self.iterations),
                ),
            )
        )
        return [(g if g is None else next(reduced), v) for g, v in grads_and_vars]

    keras_tf_optimizer.TFOptimizer._all_reduce_sum_gradients = _all_reduce_sum_gradients


def _hook_check_finite(op_class):
    optimizer_class = keras.optimizers.LossScaleOptimizer
    stock = optimizer_class.check_finite

    def check_finite(self, grads):
        finite = stock(self, grads)
        if _active_op(op_class) is None:
            return finite
        overflows = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, tf.cast(tf.logical_not(finite), tf.float32)
        )
        return tf.equal(overflows, 0.0)

    optimizer_class.check_finite = check_finite


def _hook_cond(op_class):
    stock_cond = keras_core.cond
    stock_apply = keras_base_optimizer.BaseOptimizer._backend_apply_gradients

    def _backend_apply_gradients(self, grads, trainable_variables):
        _hooks.optimizer_depth = getattr(_hooks, "optimizer_depth", 0) + 1
        try:
            return stock_apply(self, grads, trainable_variables)
        finally:
            _hooks.optimizer_depth -= 1

    def cond(pred, true_fn, false_fn):
        if not getattr(_hooks, "optimizer_depth", 0) or _active_op(op_class) is None:
            return stock_cond(pred, true_fn, false_fn)
        if context.executing_eagerly():
            return true_fn() if pred else false_fn()

        def merge(strategy, pred, true_fn, false_fn):
            def branch(fn):
                # The branches' values are not used by the optimizer, and the two would have to
                # agree in structure.
                def run():
                    strategy.extended.call_for_each_replica(lambda f: (f(), None)[1], args=(fn,))
                    return tf.constant(0)

                return run

            tf.cond(local_tensors(pred)[0], branch(true_fn), branch(false_fn))

        tf.distribute.get_replica_context().merge_call(merge, args=(pred, true_fn, false_fn))
        return None

    keras_core.cond = cond
    keras_base_optimizer.BaseOptimizer._backend_apply_gradients = _backend_apply_gradients


def _hook_predict():
    stock = keras_tf_trainer.reduce_per_replica

    def reduce_per_replica(values, strategy, reduction):
        group = getattr(strategy.extended, "host_group", None)
        if group is None:
            return stock(values, strategy, reduction)
        if reduction == "concat":
            return tf.nest.map_structure(
                lambda value: keras_tf_trainer._multi_worker_concat(value, strategy), values
            )
        return _mean_over_hosts(stock(values, strategy, reduction), group)

    keras_tf_trainer.reduce_per_replica = reduce_per_replica


def _mean_over_hosts(values, group):
    flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]
    if not flat:
        return values
    parts = [tf.reshape(tf.cast(value, tf.float32), [-1]) for value in flat]
    means = group.all_reduce_sum(tf.concat(parts, 0)) / group.size
    means = tf.split(means, [value.shape.num_elements() for value in flat])
    means = [tf.cast(tf.reshape(m, v.shape), v.dtype) for m, v in zip(means, flat, strict=True)]
    return tf.nest.pack_sequence_as(values, means)


def _hook_symbolic_build():
    stock = keras_tf_trainer.TensorFlowTrainer._maybe_symbolic_build

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = self._distribute_strategy
        if strategy is None or not isinstance(strategy.extended, _EqualReplicas):
            return stock(self, iterator=iterator, data_batch=data_batch)
        if iterator is not None:
            for _, _, batches in iterator:
                data_batch = tf.nest.map_structure(lambda v: local_tensors(v)[0], next(batches))
                break
        return stock(self, data_batch=data_batch)

    keras_tf_trainer.TensorFlowTrainer._maybe_symbolic_build = _maybe_symbolic_build


def _hook_seeds():
    stock = keras.random.SeedGenerator.next

    def next_seed(self, ordered=True):
        seed = stock(self, ordered)
        replica_context = tf.distribute.get_replica_context()
        if replica_context is None or not isinstance(
            replica_context.strategy.extended, _EqualReplicas
        ):
            return seed
        # The state moves on alike everywhere; only what is drawn from it differs. Worker 0 draws
        # what a single replica would.
        worker = tf.cast(replica_context.replica_id_in_sync_group, seed.dtype)
        return seed + worker * tf.constant([_SEED_STRIDE, 0], seed.dtype)

    keras.random.SeedGenerator.next = next_seed

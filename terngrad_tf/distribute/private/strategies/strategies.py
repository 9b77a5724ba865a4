"""Strategies whose replicas stay equal: the parts shared by local and cluster strategies."""

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx as autograph_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.distribute import (
    distribute_lib,
    input_lib,
    mirrored_run,
    mirrored_strategy,
)
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from terngrad_tf import ternary
from terngrad_tf.distribute.private.collectives.local_weights import LocalStepReplicas
from terngrad_tf.distribute.private.data import batches, own_memory
from terngrad_tf.distribute.private.replicas import replicas
from terngrad_tf.distribute.private.replicas.devices import devices_of_replicas
from terngrad_tf.distribute.private.replicas.padding import PaddedReplicas
from terngrad_tf.distribute.private.replicas.reductions import DeviceReductions
from terngrad_tf.distribute.private.replicas.shared_variables import SharedVariables
from terngrad_tf.distribute.private.strategies import class_weights


class SharedVariableReplicas(SharedVariables, DeviceReductions, PaddedReplicas, LocalStepReplicas):
    """Several replicas on each device, whose variables stay equal.

    The first device runs the first replicas. A device's replicas share one copy of the weights, the
    optimizer's variables and others that all write together. Each has its own copy of variables
    that replicas write separately:

    * metrics, which are summed when read;
    * the states of random generators;
    * batch-norm statistics, which Keras creates with aggregation "none". When a function ends, such
      floating-point variables that it wrote become their mean over all replicas; otherwise
      checkpoints and evaluation would depend on the replica. The mean of exponential averages is
      the average of means.
    """

    def _initialize_replicas(self, num_replicas, num_devices):
        self._device_of_replica = devices_of_replicas(num_replicas, num_devices)
        # Threads of a program take turns to trace steps, or to run them eagerly.
        self._turn = threading.RLock()
        self._devices_of_copies = threading.local()
        self._written = {}
        self._run_depth = 0
        self._jit_compile = False
        self._initialize_local_steps()
        self._wrapped_functions = weakref.WeakKeyDictionary()

    @property
    def turn(self) -> contextlib.AbstractContextManager[Any]:
        """See `LocalReplicas`. Raises RuntimeError in replica context."""
        # The thread of a replica would wait forever for the one that waits for it.
        distribute_lib._require_cross_replica_or_default_context_extended(self)
        return self._turn

    @property
    def worker_devices(self) -> tuple[str, ...]:
        return tuple(self._devices[device] for device in self._device_of_replica)

    @property
    def worker_devices_by_replica(self) -> list[list[str]]:
        return [[device] for device in self.worker_devices]

    def _call_for_each_replica(self, fn, args, kwargs):
        if isinstance(fn, polymorphic_function.Function):
            # Trace the averaging, too: otherwise it would be missing from the second call on.
            wrapped = self._wrapped_functions.get(fn)
            if wrapped is None:
                strategy = self._container_strategy()
                python_function = fn.python_function
                # Not what replicas do together, such as the exchange.
                jit_compile = bool(fn._jit_compile)

                def traced(*args, **kwargs):
                    with self.compiling(jit_compile):
                        return strategy.extended.call_for_each_replica(
                            python_function, args, kwargs
                        )

                wrapped = self._wrapped_functions[fn] = fn._clone(python_function=traced)
                wrapped._jit_compile = None
            return wrapped(*args, **kwargs)
        with self.turn:
            if self._run_depth:
                return self._call_within_run(fn, args, kwargs)
            with replicas.after_tensors((args, kwargs)):
                try:
                    with self._own_weights():
                        result = self._call_within_run(fn, args, kwargs)
                except BaseException:
                    self._written = {}
                    raise
                self._end_run()
            return result

    @contextlib.contextmanager
    def compiling(self, jit_compile: bool) -> Iterator[None]:
        """Context in which XLA compiles what each replica of a run computes alone, or does not."""
        with self.turn:
            previous, self._jit_compile = self._jit_compile, jit_compile
            try:
                yield
            finally:
                self._jit_compile = previous

    def _call_within_run(self, fn, args, kwargs):
        # Not runs within a merge function, such as the branches of an optimizer's condition.
        jit_compile = self._jit_compile and not self._run_depth
        self._run_depth += 1
        try:
            strategy = self._container_strategy()
            # Eager code runs in one thread per replica, as in stock strategies.
            if context.executing_eagerly() or replicas.needs_own_traces((args, kwargs)):
                return mirrored_run.call_for_each_replica(strategy, fn, args, kwargs)
            fn = autograph.tf_convert(fn, autograph_ctx.control_status_ctx())
            return replicas.call_for_each_replica(strategy, fn, args, kwargs, jit_compile)
        finally:
            self._run_depth -= 1

    def _experimental_distribute_dataset(self, dataset, options):
        if _replicates_inputs(options):
            raise NotImplementedError(
                "InputReplicationMode.PER_REPLICA is only supported in "
                "`distribute_datasets_from_function`"
            )
        context_ = None if self.process_group is None else self._make_input_context()
        return self._split_batches(dataset, options, context_)

    def _split_batches(self, dataset, options, context_):
        """Splits this process's part of the batches, given by a context, among local replicas."""
        processes = 1 if context_ is None else context_.num_input_pipelines
        (process, _), *_ = self._input_workers._worker_device_pairs
        shared = len(self._devices) < len(self._device_of_replica)
        if processes * len(self._device_of_replica) > 1:
            dataset = own_memory.with_own_memory(dataset)
        distributed_dataset = batches.ReplicaBatches if shared else input_lib.DistributedDataset
        distributed = distributed_dataset(
            input_lib.InputWorkers([(process, self._devices)]),
            self._container_strategy(),
            dataset,
            num_replicas_in_sync=processes * len(self._devices),
            input_context=context_,
            options=options,
        )
        class_weights.keep_source(distributed, dataset, options)
        return distributed


def is_own(strategy: tf.distribute.Strategy) -> bool:
    """Returns True if a strategy is one of this package."""
    return isinstance(strategy.extended, SharedVariableReplicas)


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

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        devices: Sequence[str],
        num_replicas: int,
        gradient_ops: Any,
    ):
        self.gradient_ops = gradient_ops
        self._initialize_replicas(num_replicas, len(devices))
        # NCCL needs several GPUs.
        several_gpus = len(devices) > 1 and all("GPU" in device for device in devices)
        super().__init__(
            strategy,
            devices=devices,
            cross_device_ops=None if several_gpus else reduction_to_one_device(),
        )
        ((process, _),) = self._input_workers_devices
        self._input_workers_devices = ((process, self.worker_devices),)

    @property
    def _num_replicas_in_sync(self):
        return len(self._device_of_replica)


def reduction_to_one_device() -> tf.distribute.ReductionToOneDevice:
    """Returns the op for replicas without NCCL, whose sums have the same bits in every run."""
    return tf.distribute.ReductionToOneDevice(accumulation_fn=ternary.sum_in_order)


def _replicates_inputs(options):
    mode = tf.distribute.InputReplicationMode.PER_REPLICA
    return options is not None and options.experimental_replication_mode == mode

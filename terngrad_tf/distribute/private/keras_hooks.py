"""Where Keras 3 leaves gaps under `tf.distribute`."""

import threading

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import core as keras_core
from keras.src.backend.tensorflow import optimizer as keras_tf_optimizer
from keras.src.backend.tensorflow import trainer as keras_tf_trainer
from keras.src.optimizers import base_optimizer as keras_base_optimizer
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.cross_device_ops import gradient_ops
from terngrad_tf.distribute.private.devices import local_tensors
from terngrad_tf.distribute.private.strategies import EqualReplicas

if keras.config.backend() != "tensorflow":
    # Keras would train without `tf.distribute`, each process for itself, and say nothing.
    raise ImportError(
        "terngrad_tf needs the TensorFlow backend of Keras. Received: "
        f"backend={keras.config.backend()!r}. Set the environment variable KERAS_BACKEND to "
        "tensorflow, or `backend` in ~/.keras/keras.json."
    )

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
    if strategy.num_replicas_in_sync == 1 and not isinstance(strategy.extended, EqualReplicas):
        return None
    return gradient_ops(strategy, op_class)


def _without_examples():
    extended = tf.distribute.get_strategy().extended
    return extended.is_empty() if isinstance(extended, EqualReplicas) else None


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
        if strategy is None or not isinstance(strategy.extended, EqualReplicas):
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
            replica_context.strategy.extended, EqualReplicas
        ):
            return seed
        # The state moves on alike everywhere; only what is drawn from it differs. Worker 0 draws
        # what a single replica would.
        worker = tf.cast(replica_context.replica_id_in_sync_group, seed.dtype)
        return seed + worker * tf.constant([_SEED_STRIDE, 0], seed.dtype)

    keras.random.SeedGenerator.next = next_seed

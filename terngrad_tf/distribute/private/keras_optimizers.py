"""Keras optimizers under `tf.distribute`: what is exchanged, and what is done with the sum.

A step of a Keras optimizer exchanges gradients in its last part, `_all_reduce_sum_gradients`, after
it clipped them. A limit set for the whole batch's gradient is then applied to what each replica has
of it. Here gradients are exchanged first, and the sum is clipped:

    accumulate -> exchange -> clip -> decay weights -> update
"""

import contextlib
import threading

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import core as keras_core
from keras.src.backend.tensorflow import optimizer as keras_tf_optimizer
from keras.src.optimizers import base_optimizer as keras_base_optimizer
from keras.src.utils import tracking
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.cross_device_ops import gradient_ops
from terngrad_tf.distribute.private.devices import local_tensors, mirrored, variable_paths
from terngrad_tf.distribute.private.strategies import SharedVariableReplicas

_state = threading.local()


class _Update:
    """One call of an optimizer that a replica makes: its variables, and how far it is."""

    def __init__(self, optimizer, variables):
        self.optimizer = optimizer
        self.variables = list(variables)
        self.is_reduced = False


def _update_of(optimizer):
    update = getattr(_state, "update", None)
    return update if update is not None and update.optimizer is optimizer else None


@contextlib.contextmanager
def _updating(update):
    previous, _state.update = getattr(_state, "update", None), update
    try:
        yield
    finally:
        _state.update = previous


def active_op(op_class):
    """The op that reduces gradients in this replica context, or None."""
    replica_context = tf.distribute.get_replica_context()
    if replica_context is None:
        return None
    strategy = replica_context.strategy
    if strategy.num_replicas_in_sync == 1 and not isinstance(
        strategy.extended, SharedVariableReplicas
    ):
        return None
    return gradient_ops(strategy, op_class)


def padding_of_replica():
    """What the current replica knows of its part of a batch; None where it was not padded."""
    extended = tf.distribute.get_strategy().extended
    return extended.padding() if isinstance(extended, SharedVariableReplicas) else None


def padded_replica(padding):
    """Context manager in which a replica computes with a `padding_of_replica` again."""
    if padding is None:
        return contextlib.nullcontext()
    return tf.distribute.get_strategy().extended.padded(padding)


def replica_is_empty():
    """Whether the current replica is padded: a boolean tensor, or None for no."""
    padding = padding_of_replica()
    return None if padding is None else padding.is_empty


def sum_gradients(optimizer, gradients, variables):
    """Sums gradients over replicas as Keras optimizers do it; in replica context.

    Keras offers this as a part of `apply` only, which also updates the variables.
    """
    return [
        g for g, _ in optimizer._all_reduce_sum_gradients(zip(gradients, variables, strict=True))
    ]


def mask_gradients(gradients):
    """Zeros instead of the gradients of a padded replica; in replica context.

    Not a product: what zeros gave may be NaN.
    """
    empty = replica_is_empty()
    if empty is None:
        return list(gradients)

    def mask(gradient):
        if isinstance(gradient, tf.IndexedSlices):
            rows = mask(gradient.values)
            return tf.IndexedSlices(rows, gradient.indices, gradient.dense_shape)
        return None if gradient is None else tf.where(empty, tf.zeros_like(gradient), gradient)

    return [mask(gradient) for gradient in gradients]


def hook_exchange(op_class):
    """Under a strategy whose gradients `op_class` reduces, exchanges them before they are clipped.

    The op gets them with their variables and the optimizer's step.
    """
    optimizer_class = keras_base_optimizer.BaseOptimizer
    stock_apply = optimizer_class._backend_apply_gradients
    stock_clip = optimizer_class._clip_gradients
    stock_reduce = keras_tf_optimizer.TFOptimizer._all_reduce_sum_gradients

    def _backend_apply_gradients(self, grads, trainable_variables):
        if active_op(op_class) is None:
            return stock_apply(self, grads, trainable_variables)
        with _updating(_Update(self, trainable_variables)):
            return stock_apply(self, mask_gradients(grads), trainable_variables)

    def _clip_gradients(self, grads):
        update = _update_of(self)
        if update is None or update.is_reduced:
            return stock_clip(self, grads)
        pairs = zip(grads, update.variables, strict=True)
        reduced = [g for g, _ in self._all_reduce_sum_gradients(pairs)]
        update.is_reduced = True
        if self.clipnorm or self.global_clipnorm or self.clipvalue:
            return _clip_sums(self, stock_clip, reduced)
        return reduced

    def _all_reduce_sum_gradients(self, grads_and_vars):
        op = active_op(op_class)
        if op is None:
            return stock_reduce(self, grads_and_vars)
        grads_and_vars = list(grads_and_vars)
        update = _update_of(self)
        if update is not None and update.is_reduced:
            return grads_and_vars
        op.check_context()
        kept = keras_tf_optimizer.filter_empty_gradients(grads_and_vars)
        indices = [self._get_variable_index(variable) for _, variable in kept]
        all_paths = variable_paths(self._trainable_variables)
        paths = [all_paths[index] for index in indices]
        gradients = [g for g, _ in kept]

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

    optimizer_class._backend_apply_gradients = _backend_apply_gradients
    optimizer_class._clip_gradients = _clip_gradients
    keras_tf_optimizer.TFOptimizer._all_reduce_sum_gradients = _all_reduce_sum_gradients


def _clip_sums(optimizer, clip, gradients):
    """Clips reduced gradients, once a device; in replica context."""

    def merge(strategy, gradients):
        devices = strategy.extended.worker_devices
        clipped = {}
        for replica, device in enumerate(devices):
            if device not in clipped:
                local = [local_tensors(g, len(devices))[replica] for g in gradients]
                with tf.device(device):
                    clipped[device] = clip(optimizer, local)
        return [
            mirrored(by_replica) for by_replica in zip(*(clipped[d] for d in devices), strict=True)
        ]

    return tf.distribute.get_replica_context().merge_call(merge, args=(gradients,))


def hook_rate():
    """Gives updates one learning rate a device.

    Each replica computes it, and `extended.update` refuses values that may differ between replicas.
    """
    optimizer_class = keras_tf_optimizer.TFOptimizer
    stock = optimizer_class._distributed_tf_update_step

    def _distributed_tf_update_step(self, distribution, grads_and_vars, learning_rate):
        extended = distribution.extended
        if isinstance(extended, SharedVariableReplicas):
            learning_rate = extended.agreed(learning_rate)
        return stock(self, distribution, grads_and_vars, learning_rate)

    optimizer_class._distributed_tf_update_step = _distributed_tf_update_step


def hook_accumulators():
    """Gives each replica gradient accumulators of its own.

    Optimizer variables have one copy a device, but replicas add up gradients each for itself, and
    exchange what they have in steps that update.
    """
    optimizer_class = keras_base_optimizer.BaseOptimizer
    stock = optimizer_class.build

    @tracking.no_automatic_dependency_tracking
    def build(self, variables):
        extended = self._distribution_strategy.extended
        steps = self.gradient_accumulation_steps
        if not steps or not isinstance(extended, SharedVariableReplicas):
            return stock(self, variables)
        self.gradient_accumulation_steps = None
        try:
            stock(self, variables)
        finally:
            self.gradient_accumulation_steps = steps
        with extended.variables_of_replicas():
            self._accumulated_gradients = [
                self.add_variable_from_reference(variable, name="gradient_accumulator")
                for variable in variables
            ]

    optimizer_class.build = build


def hook_check_finite(op_class):
    """Lets all replicas decide together whether gradients are finite.

    Keras asks one replica about *its* gradients. Where another overflows, float gradients would
    poison the weights, and processes that disagree would wait for each other for ever.
    """
    optimizer_class = keras.optimizers.LossScaleOptimizer
    stock = optimizer_class.check_finite

    def check_finite(self, grads):
        if active_op(op_class) is None:
            return stock(self, grads)
        finite = stock(self, mask_gradients(grads))
        overflows = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, tf.cast(tf.logical_not(finite), tf.float32)
        )
        return tf.equal(overflows, 0.0)

    optimizer_class.check_finite = check_finite


def hook_cond():
    """Traces a condition of an optimizer's update (accumulation, EMA) for all replicas together.

    Its branches reduce and update, which replicas do together.
    """
    stock = keras_core.cond

    def cond(pred, true_fn, false_fn):
        update = getattr(_state, "update", None)
        if update is None:
            return stock(pred, true_fn, false_fn)
        if context.executing_eagerly():
            return true_fn() if pred else false_fn()

        def merge(strategy, pred, true_fn, false_fn):
            def branch(fn):
                def replica(fn):
                    with _updating(update):
                        fn()

                # The branches' values are not used by the optimizer, and the two would have to
                # agree in structure.
                def run():
                    strategy.extended.call_for_each_replica(replica, args=(fn,))
                    return tf.constant(0)

                return run

            tf.cond(local_tensors(pred)[0], branch(true_fn), branch(false_fn))

        tf.distribute.get_replica_context().merge_call(merge, args=(pred, true_fn, false_fn))
        return None

    keras_core.cond = cond

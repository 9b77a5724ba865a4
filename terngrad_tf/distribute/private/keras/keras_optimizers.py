"""Exchanges and clips the gradients of Keras optimizers under `tf.distribute`.

A Keras optimizer exchanges gradients last, in `_all_reduce_sum_gradients`: it would clip each
replica's part by a limit for the whole batch. Here the sum is clipped:

    accumulate -> exchange -> clip -> decay weights -> update
"""

import contextlib
import functools
import threading
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import optimizer as keras_tf_optimizer
from keras.src.optimizers import base_optimizer as keras_base_optimizer
from keras.src.utils import tracking
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.keras.loss_scale import warn_of_scale
from terngrad_tf.distribute.private.keras.rounding_noise import clipped_share, with_noise
from terngrad_tf.distribute.private.keras.second_moments import takes_orthogonal_steps
from terngrad_tf.distribute.private.keras.sparse_rows import (
    must_be_summed,
    separate_rows,
    sum_rows,
    with_static_shape,
)
from terngrad_tf.distribute.private.keras_names import backend_ops
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.accumulators import (
    accumulators_of,
    gather_totals,
    updating_optimizers,
)
from terngrad_tf.distribute.private.replicas.devices import (
    local_tensors,
    mirrored,
    per_replica,
    variable_paths,
)
from terngrad_tf.distribute.private.replicas.merging import merge
from terngrad_tf.distribute.private.replicas.padding import mask_gradients
from terngrad_tf.distribute.private.strategies.cross_device_ops import gradient_ops
from terngrad_tf.distribute.private.strategies.strategies import is_own
from terngrad_tf.distribute.steps.contexts import noise_of_updates, updates_are_local
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer
from terngrad_tf.quantization_options import ORTHOGONAL_BITS, SYMBOL_BITS

_Optimizer = keras_base_optimizer.BaseOptimizer
_TFOptimizer = keras_tf_optimizer.TFOptimizer

_state = threading.local()


class _Update:
    """One call of an optimizer in a replica: its variables and its progress."""

    def __init__(self, optimizer, variables):
        self.optimizer = optimizer
        self.variables = list(variables)
        # A replica's own steps use its own gradient only.
        self.is_reduced = updates_are_local()
        # Variance by rounding of each reduced gradient; None where unknown.
        self.noise = noise_of_updates()


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


def active_op() -> Any:
    """Returns the op that reduces gradients in this replica context, or None."""
    replica_context = tf.distribute.get_replica_context()
    if replica_context is None:
        return None
    strategy = replica_context.strategy
    return gradient_ops(strategy) if strategy.num_replicas_in_sync > 1 or is_own(strategy) else None


def sum_gradients(
    optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], variables: Sequence[Any]
) -> list[Any]:
    """Sums gradients over replicas like Keras optimizers; in replica context.

    Keras' public `apply` also updates the variables.
    """
    return [
        g for g, _ in optimizer._all_reduce_sum_gradients(zip(gradients, variables, strict=True))
    ]


def sum_of_replicas(
    strategy: tf.distribute.Strategy,
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[Sequence[Any]],
    indices: Sequence[int],
    step: Any,
) -> tuple[list[Any], list[Any]]:
    """Sums gradients over replicas like `sum_gradients`, in cross-replica context.

    Does not measure how long processes wait.

    Args:
        gradients: T lists with a tensor for each local replica.
        indices: T positions among the optimizer's variables.
        step: integer scalar tensor that selects the random bits, with `indices`.

    Returns:
        As `TernaryAllReduce.reduce_gradients`.
    """
    op = gradient_ops(strategy)
    all_paths = variable_paths(optimizer._trainable_variables)
    op.check_context(all_paths)
    paths = [all_paths[index] for index in indices]
    first = [of_replicas[0] for of_replicas in gradients]
    finer = _finer_bits(optimizer, op, first, paths)
    op.choose_mode(strategy, first, paths, finer)
    scales = []
    for device, own in zip(
        strategy.extended.worker_devices, zip(*gradients, strict=True), strict=True
    ):
        with tf.device(device):
            scales.append(op.local_scales(own, paths, strategy.num_replicas_in_sync, finer))
    values = [per_replica(tensors) for tensors in gradients]
    return op.reduce_gradients(strategy, values, per_replica(scales), paths, indices, step, finer)


def _finer_bits(optimizer, op, gradients, paths):
    """Returns the least bits, by position, of gradients whose noise would harm the steps."""
    if takes_orthogonal_steps(optimizer):
        return dict.fromkeys(range(len(gradients)), ORTHOGONAL_BITS)
    return dict.fromkeys(op.symbol_positions(gradients, paths), SYMBOL_BITS)


@patch(_Optimizer, "_backend_apply_gradients")
def _note_update(stock, self, grads, trainable_variables):
    """Notes the optimizer whose update a replica runs; leaves out gradients of padded rows."""
    if active_op() is None:
        return stock(self, grads, trainable_variables)
    if not updates_are_local() and local_steps_optimizer(self) is None:
        warn_of_scale(self, grads)
    with _updating(_Update(self, trainable_variables)):
        return stock(self, mask_gradients(grads), trainable_variables)


@patch(_Optimizer, "_overwrite_variables_directly_with_gradients")
def _overwrite_with_maxima(stock, self, grads, vars):
    """Overwrites maxima that float8 layers keep with those of all replicas' examples.

    Keras takes the maximum over accumulated steps, too.
    """
    replica_context = tf.distribute.get_replica_context()
    is_shared = replica_context is not None and is_own(replica_context.strategy)
    if not is_shared or updates_are_local():
        return stock(self, grads, vars)

    def maximum(gradient):
        return tf.reduce_max(replica_context.all_gather(gradient[tf.newaxis], axis=0), axis=0)

    grads = [
        maximum(g) if g is not None and getattr(v, "overwrite_with_gradient", False) else g
        for g, v in zip(grads, vars, strict=True)
    ]
    return stock(self, grads, vars)


@patch(_Optimizer, "_clip_gradients")
def _clip_the_sum(stock, self, grads):
    """Exchanges gradients before clipping; see the module's docstring."""
    update = _update_of(self)
    if update is None or (update.is_reduced and not update.noise):
        return stock(self, grads)
    if not update.is_reduced:
        grads = sum_gradients(self, grads, update.variables)
        update.is_reduced = True
    noise = update.noise
    if self.clipnorm or self.global_clipnorm or self.clipvalue:
        grads, noise = _clip_sums(self, stock, grads, noise)
    return with_noise(self, grads, noise, update.variables)


@patch(_TFOptimizer, "_all_reduce_sum_gradients")
def _reduce_with_op(stock, self, grads_and_vars):
    """Gives the op gradients with their variables and the optimizer's step.

    Elsewhere, `all_reduce` cannot distinguish them from metrics, losses and batch-norm moments.
    """
    op = active_op()
    if op is None:
        return stock(self, grads_and_vars)
    grads_and_vars = list(grads_and_vars)
    update = _update_of(self)
    if update is not None and update.is_reduced:
        return grads_and_vars
    all_paths = variable_paths(self._trainable_variables)
    op.check_context(all_paths)
    kept = keras_tf_optimizer.filter_empty_gradients(grads_and_vars)
    indices = [self._get_variable_index(variable) for _, variable in kept]
    paths = [all_paths[index] for index in indices]
    gradients = op.as_exchanged([g for g, _ in kept])
    num_rows = [
        v.shape[0] if must_be_summed(g) else 0 for g, (_, v) in zip(gradients, kept, strict=True)
    ]
    gradients = [separate_rows(g, n) if n else g for g, n in zip(gradients, num_rows, strict=True)]
    shapes = [variable.shape for _, variable in kept]
    # Copies, which `reduce` must not get: gradients made outside replicas count once.
    own = [*map(with_static_shape, gradients, shapes)]
    step = tf.convert_to_tensor(self.iterations)
    finer = _finer_bits(self, op, own, paths)

    def reduce(strategy, gradients, scales, step):
        gradients = [*map(with_static_shape, gradients, shapes)]
        args = strategy, gradients, scales, paths, indices, step, finer
        exchange = functools.partial(op.reduce_gradients, *args)
        timer = getattr(strategy, "sync_timer", None)
        reduced, noise = timer.measure(gradients, exchange) if timer else exchange()
        summed = [
            sum_rows(strategy, g, n) if n else g for g, n in zip(reduced, num_rows, strict=True)
        ]
        return summed, noise

    def choose(strategy):
        op.choose_mode(strategy, own, paths, finer)

    if op.options.chooses_mode:
        merge(choose)
    context = tf.distribute.get_replica_context()
    scales = op.local_scales(own, paths, context.num_replicas_in_sync, finer)
    summed, noise = map(iter, merge(reduce, gradients, scales, step))
    if update is not None:
        update.noise = [None if g is None else next(noise) for g, _ in grads_and_vars]
    return [(g if g is None else next(summed), v) for g, v in grads_and_vars]


def _clip_sums(optimizer, clip, gradients, noise):
    """Clips reduced gradients and their noise, once per device; in replica context."""

    def clip_once(strategy, gradients, noise):
        devices = strategy.extended.worker_devices
        clipped = {}
        for replica, device in enumerate(devices):
            if device not in clipped:
                local = [local_tensors(g, len(devices))[replica] for g in gradients]
                of_local = [local_tensors(n, len(devices))[replica] for n in noise]
                with tf.device(device):
                    after = clip(optimizer, local)
                    kept = [
                        None if n is None else n * clipped_share(g, c)
                        for n, g, c in zip(of_local, local, after, strict=True)
                    ]
                clipped[device] = after + kept
        values = [
            None if by_replica[0] is None else mirrored(by_replica)
            for by_replica in zip(*(clipped[d] for d in devices), strict=True)
        ]
        return values[: len(gradients)], values[len(gradients) :]

    return merge(clip_once, gradients, noise)


@patch(_TFOptimizer, "_distributed_tf_update_step")
def _one_rate_a_device(stock, self, distribution, grads_and_vars, learning_rate):
    """Gives updates one learning rate per device.

    Each replica computes it, and `extended.update` refuses values that may differ.
    """
    if is_own(distribution):
        learning_rate = distribution.extended.agreed(learning_rate)
    return stock(self, distribution, grads_and_vars, learning_rate)


@patch(_Optimizer, "build")
@tracking.no_automatic_dependency_tracking
def _accumulators_of_replicas(stock, self, variables):
    """Gives each replica its own gradient accumulators.

    Optimizer variables have one copy per device; replicas exchange only in steps that update.
    """
    strategy = self._distribution_strategy
    steps = self.gradient_accumulation_steps
    if not steps or not is_own(strategy):
        return stock(self, variables)
    self.gradient_accumulation_steps = None
    try:
        stock(self, variables)
    finally:
        self.gradient_accumulation_steps = steps
    with strategy.extended.sums_of_replicas(lambda: _is_gathered(self)):
        self._accumulated_gradients = [
            self.add_variable_from_reference(variable, name="gradient_accumulator")
            for variable in variables
        ]


def _is_gathered(optimizer):
    """Returns True if the first process holds all accumulated gradients, or if there are none."""
    step = int(optimizer._iterations.numpy())
    gathered = getattr(optimizer, "_gathered_at", None)
    return step % optimizer.gradient_accumulation_steps == 0 or step == gathered


@patch(keras.callbacks.CallbackList, "on_epoch_end")
def _gather_accumulated(stock, self, *args, **kwargs):
    """Gathers accumulated gradients before the chief may save them."""
    for optimizer in updating_optimizers(getattr(self.model, "optimizer", None)):
        strategy = optimizer._distribution_strategy
        in_cluster = is_own(strategy) and strategy.extended.process_group is not None
        accumulated = accumulators_of(optimizer) if in_cluster else ()
        if accumulated and not _is_gathered(optimizer):
            gather_totals(strategy, [accumulator.value for accumulator in accumulated])
            optimizer._gathered_at = int(optimizer._iterations.numpy())
    return stock(self, *args, **kwargs)


@patch(keras.optimizers.LossScaleOptimizer, "check_finite")
def _agree_on_overflow(stock, self, grads):
    """Lets all replicas decide together whether gradients are finite.

    Keras checks one replica's gradients. Another's overflow would destroy the weights, and
    processes that disagree would hang.
    """
    if active_op() is None:
        return stock(self, grads)
    finite = stock(self, mask_gradients(grads))
    overflows = tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.SUM, tf.cast(tf.logical_not(finite), tf.float32)
    )
    return tf.equal(overflows, 0.0)


@patch(_Optimizer, "_get_current_learning_rate")
def _rate_by_itself(stock, self):
    """Lets schedules contain conditions: their values are used, see `_cond_of_all_replicas`."""
    with _updating(None):
        return stock(self)


@patch(backend_ops, "cond")
def _cond_of_all_replicas(stock, pred, true_fn, false_fn):
    """Traces a condition of an optimizer's update (accumulation, EMA) for all replicas together.

    Its branches reduce and update. Conditions within one variable's update step have values, which
    each replica computes alone.
    """
    update = getattr(_state, "update", None)
    if update is None or tf.distribute.in_cross_replica_context():
        return stock(pred, true_fn, false_fn)
    if context.executing_eagerly():
        return true_fn() if pred else false_fn()

    def take_branch(strategy, pred, true_fn, false_fn):
        def branch(fn):
            def replica(fn):
                with _updating(update):
                    fn()

            # Values are unused, and branches need the same structure.
            def run():
                strategy.extended.call_for_each_replica(replica, args=(fn,))
                return tf.constant(0)

            return run

        tf.cond(local_tensors(pred)[0], branch(true_fn), branch(false_fn))

    tf.distribute.get_replica_context().merge_call(take_branch, args=(pred, true_fn, false_fn))
    return None

"""Scales Keras' losses: a replica's loss is its part of the loss of the whole batch."""

import contextlib
import threading
import warnings

import keras
import tensorflow as tf
from keras.src.losses import loss as keras_loss
from keras.src.trainers import compile_utils

from terngrad_tf.distribute.private.keras.loss_scale import is_scaled, is_sum, note_scaled
from terngrad_tf.distribute.private.keras.step_results import (
    losses_are_means,
    weighted_numbers,
    with_scaled_gradient,
)
from terngrad_tf.distribute.private.keras_names import BaseTrainer, TensorFlowTrainer
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas import replicas
from terngrad_tf.distribute.private.replicas.padding import current_padding
from terngrad_tf.distribute.private.strategies.strategies import is_own
from terngrad_tf.distribute.steps.contexts import optimizer_of_local_step

_OWN_WEIGHTS = (
    "A loss with a mask, or with reduction='mean_with_sample_weight', is divided by the weights of"
    " each replica's examples, not of the whole batch: replicas cannot add them up after a loop,"
    " such as a recurrent layer, with `jit_compile=True`, nor inside a nested `tf.function`,"
    " `tf.cond` or `tf.while_loop`"
)
_EAGER_LOSSES = (
    "With `run_eagerly=True`, replicas take what a layer gives to `add_loss` for a mean over their"
    " examples, or a loss of Keras: losses of each example, their sum, and multiples of a Keras"
    " loss count too little"
)
# The others that take such targets are sums.
_MEANS_OF_LAST_AXIS = (
    keras.losses.binary_crossentropy,
    keras.losses.binary_focal_crossentropy,
    keras.losses.hinge,
    keras.losses.huber,
    keras.losses.log_cosh,
    keras.losses.mean_absolute_error,
    keras.losses.mean_absolute_percentage_error,
    keras.losses.mean_squared_error,
    keras.losses.mean_squared_logarithmic_error,
    keras.losses.poisson,
    keras.losses.squared_hinge,
)

_state = threading.local()


@patch(keras_loss, "scale_loss_for_distribution")
def _scale(stock, value):
    """Weights a replica's mean loss by its share of the batch's examples.

    Keras divides by the number of replicas, wrong for batches that do not divide evenly.
    """
    if getattr(_state, "are_terms", False):
        return value
    share = _share()

    def scale(value):
        return stock(value) if share is None else value * tf.cast(share, value.dtype)

    return note_scaled(with_scaled_gradient(value, scale) if losses_are_means() else scale(value))


@patch(keras_loss, "unscale_loss_for_distribution")
def _unscale(stock, value):
    """Undoes `_scale`, which leaves the losses of each example (`reduction="none"`) as they are."""
    if losses_are_means() or (value.shape.rank and _in_own_replica()):
        return value
    share = _share()
    return stock(value) if share is None else value / tf.cast(share, value.dtype)


@patch(TensorFlowTrainer, "_aggregate_additional_loss")
def _add_layers_loss(stock, self, loss):
    """Lets a loss that a layer adds be a sum over examples, or a loss of Keras.

    Keras takes each for a mean: it divides a sum by the number of replicas, and its own losses
    twice. Eager tensors do not tell what they are, but for a loss of Keras itself.
    """
    if not _in_own_replica():
        return stock(self, loss)
    total = BaseTrainer._aggregate_additional_loss(self, loss)
    if is_scaled(loss):
        return note_scaled(total)
    if not tf.is_symbolic_tensor(loss):
        if tf.executing_eagerly():
            _warn_of_added(self, loss)
        return stock(self, loss)
    if is_sum(total, tf.distribute.get_strategy().extended.process_group):
        share = _share()
        if share is None:
            total = total * tf.distribute.get_strategy().num_replicas_in_sync
        else:
            # The share of a replica without examples is 0.
            total = tf.math.divide_no_nan(total, tf.cast(share, total.dtype))
    return keras_loss.scale_loss_for_distribution(total)


def _warn_of_added(model, loss):
    """Warns of an eager loss that a layer adds; those of regularizers are no sums over examples."""
    layers = [layer for layer in model._flatten_layers() if layer.activity_regularizer is None]
    is_added = any(loss is added for layer in layers for added in layer._losses)
    if is_added and tf.distribute.get_strategy().num_replicas_in_sync > 1:
        warnings.warn(_EAGER_LOSSES, stacklevel=2)


@patch(keras_loss, "apply_mask")
def _divide_by_all_kept(stock, sample_weight, mask, dtype, reduction):
    """Divides the losses that a mask keeps by their number in the whole batch.

    Keras divides by the number of the replica's own.
    """
    weight = stock(sample_weight, mask, dtype, reduction)
    if mask is None or reduction not in ("mean", "sum_over_batch_size"):
        return weight
    return _part_of_mean(weight, mask)


@patch(keras_loss, "reduce_values")
def _divide_by_all_weights(stock, values, sample_weight=None, reduction="sum_over_batch_size"):
    """Divides by the sum of the whole batch's weights, if it divides by a sum of weights.

    Keras leaves a loss that is one number as it is.
    """
    if values.shape.rank == 0:
        is_part = getattr(_state, "may_be_number", False) and reduction not in (None, "none")
        is_part = is_part and _in_own_replica()
        return keras_loss.scale_loss_for_distribution(values) if is_part else values
    if sample_weight is not None and reduction == "mean_with_sample_weight":
        values = _part_of_mean(values, sample_weight)
    return stock(values, sample_weight, reduction)


def _part_of_mean(value, weights):
    """Scales a factor of a replica's weighted mean so that `_scale` gives its part of the batch's.

    Replicas exchange the sums of their weights, except in local steps, which follow the replica's
    own mean.
    """
    strategy = tf.distribute.get_strategy()
    is_alone = strategy.num_replicas_in_sync == 1 or optimizer_of_local_step() is not None
    if is_alone or not _in_own_replica():
        return value
    if not replicas.may_merge():
        warnings.warn(_OWN_WEIGHTS, stacklevel=2)
        return value
    own, padding = tf.stop_gradient(tf.reduce_sum(tf.cast(weights, tf.float32))), current_padding()
    if padding.is_empty is not None:
        own = tf.where(padding.is_empty, 0.0, own)
    share = 1 / strategy.num_replicas_in_sync if padding.share is None else padding.share
    total = tf.distribute.get_replica_context().all_reduce("sum", own)
    factor = tf.math.divide_no_nan(own, total * tf.cast(share, tf.float32))
    return value * tf.cast(factor, value.dtype)


def _share():
    """The replica's share of the batch's loss; None: an equal one.

    A local step follows the mean over the replica's own examples: other processes' are unknown.
    """
    return None if optimizer_of_local_step() is not None else current_padding().share


def unscale_loss(loss: tf.Tensor) -> tf.Tensor:
    """Returns a replica's mean loss from its part of the global loss, for Keras' metrics."""
    return keras_loss.unscale_loss_for_distribution(loss)


@patch(keras.losses.Loss, "__call__")
def _mark_numbers(stock, self, *args, **kwargs):
    """Scales losses of Keras that are one number for all examples.

    Overlaps are, unless an axis or weights give each example one, and so are means of targets
    without a last axis. Keras' reduction, in which `_divide_by_all_weights` scales, is the first to
    know.
    """
    is_overlap = isinstance(self, keras.losses.Dice | keras.losses.Tversky)
    # A class of the user's own may compute another number.
    is_keras = type(self).call is keras.losses.MeanSquaredError.call
    is_mean = is_keras and self.fn in _MEANS_OF_LAST_AXIS
    outer, _state.may_be_number = getattr(_state, "may_be_number", False), is_overlap or is_mean
    try:
        return stock(self, *args, **kwargs)
    finally:
        _state.may_be_number = outer


@patch(keras.distillation.Distiller, "compute_loss")
def _scale_total(stock, self, *args, **kwargs):
    """Scales the total of a student's losses; Keras scales those of its terms that are `Loss`es."""
    if not _in_own_replica():
        return stock(self, *args, **kwargs)
    _state.are_terms = True
    try:
        with weighted_numbers(self.metrics):
            total = stock(self, *args, **kwargs)
    finally:
        _state.are_terms = False
    return keras_loss.scale_loss_for_distribution(total)


@patch(tf.nn, "compute_average_loss")
def _average(stock, per_example_loss, sample_weight=None, global_batch_size=None):
    """Divides by the examples of the whole batch, also if replicas have unequal parts.

    TensorFlow multiplies the examples of a replica by the number of replicas.
    """
    loss, share = stock(per_example_loss, sample_weight, global_batch_size), _share()
    if share is None or global_batch_size is not None:
        return loss

    def scale(value):
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return value * tf.cast(num_replicas * share, value.dtype)

    return with_scaled_gradient(loss, scale) if losses_are_means() else scale(loss)


@patch(compile_utils.CompileLoss, "call")
def _track_parts(stock, self, *args, **kwargs):
    """Weights the losses of several outputs in their metrics by the replica's share of examples.

    Keras weights them by the length of a batch only if the step is traced for one length.
    """
    with weighted_numbers(self.metrics) if _in_own_replica() else contextlib.nullcontext():
        return stock(self, *args, **kwargs)


def _in_own_replica():
    context = tf.distribute.get_replica_context()
    return context is not None and is_own(context.strategy)

"""Recomputes batch-norm statistics for the current weights."""

import functools
import itertools

import keras
import tensorflow as tf

from terngrad_tf.common.arguments import check
from terngrad_tf.distribute import private
from terngrad_tf.distribute.batch_norms import batch_norms, zero_momentum


def update_batch_norm(
    model: keras.Model,
    dataset: tf.data.Dataset | tf.distribute.DistributedDataset,
    steps: int | None = None,
) -> None:
    """Recomputes the moving statistics of batch norm over a data set at the current weights.

    Training in a subspace takes few, large steps, so that the slow moving statistics belong to
    other weights. This function sets them, for each layer, to the mean of all examples' activations
    and their variance (the mean of the batches' variances plus the variance of the batches' means),
    from forward passes with `training=True`, including dropout, on all replicas.

    Args:
        model: built `keras.Model`. Layers with `trainable=False` do not change.
        dataset: `tf.data.Dataset` of batches as for `fit`, or a `tf.distribute.DistributedDataset`
            of the model's strategy; labels are not used.
        steps: number of batches to use. Default: all.

    Raises:
        ValueError: the data set is empty, or of another kind: arrays are not batches; or the model
            is not built.

    Example:
        >>> update_batch_norm(model, tf.data.Dataset.from_tensors((x, y)))
    """
    if not isinstance(dataset, tf.data.Dataset | tf.distribute.DistributedDataset):
        raise ValueError(
            "`dataset` must be a tf.data.Dataset of batches. "
            f"Received: a value of type {type(dataset).__name__}"
        )
    check(model.built, "model", "must be built", model.name)
    layers = [layer for layer in batch_norms(model) if layer.trainable]
    if not layers:
        return
    strategy = model.distribute_strategy
    if not isinstance(dataset, tf.distribute.DistributedDataset):
        dataset = strategy.experimental_distribute_dataset(dataset)
    sums_of = _batch_sums(model, layers)
    totals = None
    with zero_momentum(layers):
        for data in itertools.islice(dataset, steps):
            sums = sums_of(data)
            totals = sums if totals is None else tf.nest.map_structure(tf.add, totals, sums)
    if totals is None:
        raise ValueError("`dataset` must hold at least one batch. Received: an empty data set")
    count, means, squares = totals
    with strategy.scope():
        for layer, mean, square in zip(layers, means, squares, strict=True):
            mean, square = mean / count, square / count
            variance = tf.maximum(square - mean**2, 0)
            layer.moving_mean.assign(tf.cast(mean, layer.moving_mean.dtype))
            layer.moving_variance.assign(tf.cast(variance, layer.moving_variance.dtype))


def _batch_sums(model, layers):
    """Returns a function of a batch to sums over its examples, on all replicas, in float64.

    The sums are the number of examples, and for each layer the means and the means of squares of
    the batches, times their number of examples.
    """
    strategy = model.distribute_strategy
    means = [layer.moving_mean for layer in layers]
    variances = [layer.moving_variance for layer in layers]
    moments = [*means, *variances]
    others = [v for v in model.non_trainable_variables if all(v is not m for m in moments)]

    def of_replica(data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        # In float32, squares of means would hide variances that are small beside them.
        count = tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], tf.float64)
        # A momentum of 0 keeps NaN and Inf of earlier statistics.
        state = [(v, tf.where(tf.math.is_finite(v.value), v.value, 0)) for v in moments]
        state += [(v, tf.identity(v.value)) for v in others]
        with keras.StatelessScope(state) as scope:
            model(x, training=True)

        def found(variables):
            return [tf.cast(scope.get_current_value(v), tf.float64) for v in variables]

        of_batch = found(means)
        squares = [v + mean**2 for mean, v in zip(of_batch, found(variances), strict=True)]
        sums = count, [count * mean for mean in of_batch], [count * square for square in squares]
        empty = private.current_padding().is_empty
        counts = count > 0 if empty is None else tf.logical_not(empty)
        # Moments of an empty batch are NaN.
        return tf.nest.map_structure(lambda s: tf.where(counts, s, tf.zeros_like(s)), sums)

    @tf.function(autograph=False, reduce_retracing=True)
    def of_all(data):
        run = getattr(strategy, "run_padded", strategy.run)
        per_replica = run(of_replica, args=(data,))
        add = functools.partial(strategy.reduce, tf.distribute.ReduceOp.SUM, axis=None)
        return tf.nest.map_structure(add, per_replica)

    return of_all

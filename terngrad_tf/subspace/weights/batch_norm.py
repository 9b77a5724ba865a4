"""Recomputes batch-norm statistics for the current weights."""

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
    moments = [v for layer in layers for v in (layer.moving_mean, layer.moving_variance)]
    others = [v for v in model.non_trainable_variables if all(v is not m for m in moments)]

    def sums_of_examples(data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        # In float32, squares of means would hide variances that are small beside them.
        count = tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], tf.float64)
        # A momentum of 0 keeps NaN and Inf of earlier statistics.
        state = [(v, tf.where(tf.math.is_finite(v.value), v.value, 0)) for v in moments]
        state += [(v, tf.identity(v.value)) for v in others]
        with keras.StatelessScope(state) as scope:
            model(x, training=True)
        means = [tf.cast(scope.get_current_value(v), tf.float64) for v in moments[::2]]
        variances = [tf.cast(scope.get_current_value(v), tf.float64) for v in moments[1::2]]
        sums = [count] + [count * m for m in means]
        sums += [count * (v + m**2) for m, v in zip(means, variances, strict=True)]
        empty = private.current_padding().is_empty
        counts = count > 0 if empty is None else tf.logical_not(empty)
        # Moments of an empty batch are NaN.
        return [tf.where(counts, s, tf.zeros_like(s)) for s in sums]

    @tf.function(autograph=False, reduce_retracing=True)
    def batch_sums(data):
        run = getattr(strategy, "run_padded", strategy.run)
        per_replica = run(sums_of_examples, args=(data,))
        return [strategy.reduce(tf.distribute.ReduceOp.SUM, s, axis=None) for s in per_replica]

    totals = None
    with zero_momentum(layers):
        if not isinstance(dataset, tf.distribute.DistributedDataset):
            dataset = strategy.experimental_distribute_dataset(dataset)
        for data in itertools.islice(dataset, steps):
            sums = batch_sums(data)
            totals = sums if totals is None else [a + b for a, b in zip(totals, sums, strict=True)]
    if totals is None:
        raise ValueError("`dataset` must hold at least one batch. Received: an empty data set")
    count, means = totals[0], [s / totals[0] for s in totals[1 : 1 + len(layers)]]
    squares = [s / count for s in totals[1 + len(layers) :]]
    with strategy.scope():
        for layer, mean, square in zip(layers, means, squares, strict=True):
            variance = tf.maximum(square - mean**2, 0)
            layer.moving_mean.assign(tf.cast(mean, layer.moving_mean.dtype))
            layer.moving_variance.assign(tf.cast(variance, layer.moving_variance.dtype))

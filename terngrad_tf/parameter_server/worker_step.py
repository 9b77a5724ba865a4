"""Computation of a worker in asynchronous training, between its pull and its push."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute.batch_norms import batch_norms, zero_momentum
from terngrad_tf.parameter_server.variables import ServedModel
from terngrad_tf.training.configs.model_config import ModelConfig
from terngrad_tf.training.network import networks
from terngrad_tf.training.optimization import losses

# A prime far from typical distances between seeds.
_SEED_STRIDE = 1_000_000_007


def make_step(
    config: ModelConfig, model: keras.Model, served: ServedModel, *, exact: bool
) -> Callable[[Any], dict[str, tf.Tensor]]:
    """Returns the function of one step, which the chief schedules and a worker runs.

    Args:
        model: its variables are neither read nor written.
        exact: whether gradients travel as float32, regardless of the configuration.

    Returns:
        A `tf.function` of an iterator of batches. It returns a dict of scalars: "worker"; "pulled"
        and "step", the numbers of steps done at its pull and after its push; "pushed_bytes", the
        payload; and "entropy_loss", "total_loss" and "precision_at_1" of its batch.
    """
    # Both are known here.
    arguments = losses.compile_arguments(config.net, config.label_smoothing)  # pyright: ignore[reportArgumentType]
    weighted = list(zip(arguments["loss"], arguments["loss_weights"], strict=True))

    @tf.function(autograph=False)
    def step(batches):
        images, targets = next(batches)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        worker = tf.cast(worker, tf.int32)
        values, pulled = served.pull()
        with tf.GradientTape() as tape:
            tape.watch(values)
            entropy, total, precision, moments = _figures(
                model, served.statistics, values, weighted, images, targets, worker, pulled
            )
        gradients = tape.gradient(total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        after, num_bytes = served.push(gradients, moments, pulled, worker, exact=exact)
        return {
            "worker": worker,
            "pulled": pulled,
            "step": after,
            "pushed_bytes": num_bytes,
            "entropy_loss": entropy,
            "total_loss": total,
            "precision_at_1": precision,
        }

    return step


def _figures(model, statistics, values, weighted, images, targets, worker, pulled):
    """Returns losses, precision and batch-norm moments of a batch at given weights."""
    # Dropout is seeded by worker and step, since its draws are not counted elsewhere.
    offset = tf.stack([tf.cast(worker, tf.int64) * _SEED_STRIDE, pulled])
    mapping = [
        *zip(model.trainable_variables, values, strict=True),
        *((v, tf.zeros(v.shape)) for v in statistics),
        *(
            (v, tf.constant(v.numpy()) + tf.cast(offset, v.dtype))
            for v in networks.random_variables(model)
        ),
    ]
    with keras.StatelessScope(mapping) as scope, zero_momentum(batch_norms(model)):
        logits = tf.nest.flatten(model(images, training=True))
        regularization = tf.add_n([tf.zeros([]), *model.losses])
    entropy = tf.add_n(
        [
            weight * tf.reduce_mean(function(labels, found))
            for (function, weight), labels, found in zip(
                weighted, tf.nest.flatten(targets), logits, strict=True
            )
        ]
    )
    hits = keras.metrics.sparse_categorical_accuracy(tf.nest.flatten(targets)[0], logits[0])
    moments = [scope.get_current_value(variable) for variable in statistics]
    return entropy, entropy + regularization, tf.reduce_mean(hits), moments

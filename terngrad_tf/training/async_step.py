"""What a worker of asynchronous training computes between its pull and its push."""

import contextlib

import keras
import tensorflow as tf

from terngrad_tf.distribute.parameter_server_variables import batch_norms
from terngrad_tf.training import objective

# A prime far from the distances between seeds that people choose.
_SEED_STRIDE = 1_000_000_007


def make_step(options, model, served, *, exact):
    """The function of one step, which the chief schedules and a worker runs.

    Args:
        options: `TrainOptions`.
        model: `keras.Model`; its variables are neither read nor written.
        served: `ServedModel` of the model.
        exact: whether gradients travel as float32, whatever the options say.

    Returns:
        A `tf.function` of an iterator of batches. It returns a dict of scalars: "worker"; "pulled"
        and "step", the steps done when it pulled and after its push; "entropy_loss" and
        "total_loss".
    """
    arguments = objective.compile_arguments(options.net, options.label_smoothing)
    weighted = list(zip(arguments["loss"], arguments["loss_weights"], strict=True))

    @tf.function(autograph=False)
    def step(batches):
        images, targets = next(batches)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        worker = tf.cast(worker, tf.int32)
        values, pulled = served.pull()
        with tf.GradientTape() as tape:
            tape.watch(values)
            entropy, total, moments = _losses(
                model, served.statistics, values, weighted, images, targets, worker, pulled
            )
        gradients = tape.gradient(total, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        after = served.push(gradients, moments, pulled, worker, exact=exact)
        return {
            "worker": worker,
            "pulled": pulled,
            "step": after,
            "entropy_loss": entropy,
            "total_loss": total,
        }

    return step


def _losses(model, statistics, values, weighted, images, targets, worker, pulled):
    """Losses of a batch at given weights, and the moments that batch norm found in it."""
    weights = {id(weight) for weight in model.weights}
    # Dropout draws by worker and step, as nobody else counts its draws.
    states = [v for v in model.variables if id(v) not in weights]
    offset = tf.stack([tf.cast(worker, tf.int64) * _SEED_STRIDE, pulled])
    mapping = [
        *zip(model.trainable_variables, values, strict=True),
        *((v, tf.zeros(v.shape)) for v in statistics),
        *((v, tf.constant(v.numpy()) + tf.cast(offset, v.dtype)) for v in states),
    ]
    with keras.StatelessScope(mapping) as scope, _without_memory(model):
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
    moments = [scope.get_current_value(variable) for variable in statistics]
    return entropy, entropy + regularization, moments


@contextlib.contextmanager
def _without_memory(model):
    """Within, batch norm's moving statistics become those of the batch alone."""
    layers = batch_norms(model)
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

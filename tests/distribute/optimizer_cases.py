"""Keras optimizers with each of their options, and their results for given gradients."""

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import AbsAdam

NUM_STEPS = 6
NUM_EXAMPLES = 8
SHAPES = ((3, 2), (2,))

CLASSES = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "Adamax",
    "AdamW",
    "Ftrl",
    "Lamb",
    "Lion",
    # Muon of Keras 3.12 asks TensorFlow's variables for a path, which they do not have.
    *([] if keras.version().startswith("3.12.") else ["Muon"]),
    "Nadam",
    "RMSprop",
    "SGD",
)


def _of_class(name):
    return lambda: getattr(keras.optimizers, name)(0.01)


def _with(**options):
    return lambda: keras.optimizers.SGD(0.1, momentum=0.9, **options)


class HalvesLargeSteps(keras.optimizers.SGD):
    """SGD whose update has a condition."""

    def update_step(self, gradient, variable, learning_rate):
        step = keras.ops.cond(
            keras.ops.max(keras.ops.abs(gradient)) > 0.3,
            lambda: 0.5 * gradient,
            lambda: 1.0 * gradient,
        )
        super().update_step(step, variable, learning_rate)


CASES = {name: _of_class(name) for name in CLASSES} | {
    "AbsAdam": lambda: AbsAdam(0.01),
    "accumulation": _with(gradient_accumulation_steps=2),
    "accumulation of three, clipped": _with(gradient_accumulation_steps=3, global_clipnorm=0.2),
    "accumulation, average and decay": _with(
        gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.5, weight_decay=0.1
    ),
    "average": _with(use_ema=True, ema_momentum=0.5),
    "average, written over": _with(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "clipnorm": _with(clipnorm=0.2),
    "clipvalue": _with(clipvalue=0.05),
    "global_clipnorm": _with(global_clipnorm=0.2),
    "global_clipnorm that no gradient reaches": _with(global_clipnorm=1e6),
    "weight_decay": _with(weight_decay=0.1),
    "loss_scale_factor": _with(loss_scale_factor=8.0),
    "schedule": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    ),
    "schedules with conditions": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.CosineDecay(0.01, 4, warmup_target=0.1, warmup_steps=2)
    ),
    "schedule of restarts, average": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.CosineDecayRestarts(0.1, 2),
        use_ema=True,
        ema_overwrite_frequency=2,
    ),
    "update with a condition": lambda: HalvesLargeSteps(0.1),
    "dynamic loss scale": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01, clipnorm=0.2), initial_scale=4.0, dynamic_growth_steps=2
    ),
    "dynamic loss scale, accumulation": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), initial_scale=4.0
    ),
}


def gradients():
    """float32 `[NUM_STEPS, NUM_EXAMPLES, *shape]` for each of `SHAPES`."""
    rng = np.random.default_rng(3)
    sizes = [(NUM_STEPS, NUM_EXAMPLES, *s) for s in SHAPES]
    return [rng.normal(0.3, 1.0, size).astype(np.float32) for size in sizes]


def train(strategy):
    """Steps on the mean over the examples' gradients with each case's optimizer.

    Args:
        strategy: `tf.distribute.Strategy` whose replicas share the examples in turn.

    Returns:
        `{"case/variable": array}`: weights and moving averages after `NUM_STEPS` steps.
    """
    num_replicas = strategy.num_replicas_in_sync
    per_example = [tf.constant(g) for g in gradients()]
    with strategy.scope():
        optimizers, weights = {}, {}
        for case, make in CASES.items():
            weights[case] = [
                keras.Variable(tf.reshape(tf.range(float(np.prod(s))), s), name=f"w{i}")
                for i, s in enumerate(SHAPES)
            ]
            optimizers[case] = make()
            optimizers[case].build(weights[case])

    @tf.function
    def run(step):
        def replica():
            replica_id = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = tf.equal(tf.range(NUM_EXAMPLES) % num_replicas, replica_id)
            parts = [
                tf.reduce_sum(tf.boolean_mask(g[step], mine), 0) / NUM_EXAMPLES for g in per_example
            ]
            for case, optimizer in optimizers.items():
                one = optimizer.scale_loss(tf.constant(1.0))
                optimizer.apply([one * p for p in parts], weights[case])

        strategy.run(replica)

    for step in range(NUM_STEPS):
        run(tf.constant(step))
    results = {}
    for case, optimizer in optimizers.items():
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        averages = inner._model_variables_moving_average if inner.use_ema else []
        for i, variable in enumerate([*weights[case], *averages]):
            results[f"{case}/{i}"] = variable.numpy()
    return results

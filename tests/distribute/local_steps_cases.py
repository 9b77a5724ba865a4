"""What tests of local steps train, and what plain Keras makes of it."""

import itertools

import keras
import numpy as np
import tensorflow as tf

NUM_FEATURES = 6


def data(num_examples, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_examples, NUM_FEATURES)).astype(np.float32)
    y = np.tanh(x @ rng.normal(size=(NUM_FEATURES, 1))).astype(np.float32)
    return x, y


def network(batch_norm=False):
    """The same initial weights at each call."""
    init = [keras.initializers.GlorotUniform(seed) for seed in (1, 2)]
    layers = [
        keras.Input([NUM_FEATURES]),
        keras.layers.Dense(5, "tanh", kernel_initializer=init[0]),
    ]
    if batch_norm:
        layers.append(keras.layers.BatchNormalization(momentum=0.8))
    return keras.Sequential([*layers, keras.layers.Dense(1, kernel_initializer=init[1])])


def trained_apart(
    inner, outer, num_replicas, sync_every, *, batch_norm=False, epoch_lengths=(4, 4, 4)
):
    """What `trained` is to give, by plain Keras models that take turns; weights."""
    models = []
    for _ in range(num_replicas):
        models.append(network(batch_norm))
        models[-1].compile(inner(), "mse")
    shared = network(batch_norm)
    outer = outer()
    outer.build(shared.trainable_variables)
    x, y = data(48)
    pending = 0

    def exchange():
        own = [[v.numpy() for v in model.trainable_variables] for model in models]
        changes = [
            np.mean([w.numpy() - mine[i] for mine in own], 0)
            for i, w in enumerate(shared.trainable_variables)
        ]
        outer.apply([tf.constant(c) for c in changes], shared.trainable_variables)
        for i, variable in enumerate(shared.non_trainable_variables):
            variable.assign(np.mean([m.non_trainable_variables[i].numpy() for m in models], 0))
        for model in models:
            for own, new in zip(model.variables, shared.variables, strict=False):
                own.assign(new)

    starts = itertools.cycle(range(0, 48, 12))
    for length in epoch_lengths:
        for start in itertools.islice(starts, length):
            parts = zip(
                np.split(x[start : start + 12], num_replicas),
                np.split(y[start : start + 12], num_replicas),
                strict=True,
            )
            for model, (part_x, part_y) in zip(models, parts, strict=True):
                model.train_on_batch(part_x, part_y)
            pending += 1
            if pending == sync_every:
                exchange()
                pending = 0
        if pending:
            exchange()
            pending = 0
    return [w.numpy() for w in shared.weights]


def adamw():
    return keras.optimizers.AdamW(
        keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.9), weight_decay=0.01, clipnorm=0.5
    )


def nesterov():
    return keras.optimizers.SGD(0.7, momentum=0.9, nesterov=True)

"""Programs that stop between two updates of accumulated gradients and resume from a file."""

import os

import keras
import tensorflow as tf

from tests.clients.comparison import numbers, weights

BATCH = 8
STEPS = 3
# Batches before and after the file is written; `BEFORE` is no multiple of `STEPS`.
BEFORE, AFTER = 4, 5
WAYS = ("keras", "weights", "checkpoint")


def momentum():
    return keras.optimizers.SGD(0.5, momentum=0.9, gradient_accumulation_steps=STEPS)


def scaled():
    return keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.05, gradient_accumulation_steps=STEPS), initial_scale=4.0
    )


def several():
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        # As in older releases of Keras.
        return momentum()
    parts = keras.optimizers.OptimizerMap(momentum(), {".*bias": momentum()})
    return keras.optimizers.MultiOptimizer(parts)


def make(strategy, optimizer=momentum):
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((3,)),
                keras.layers.Dense(4, "tanh"),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer(), "mse")
    return model


def fit(model, first, last, **options):
    """Trains on the batches from `first` to `last`."""
    data = (numbers(BATCH * (BEFORE + AFTER), 3), numbers(BATCH * (BEFORE + AFTER), 1, seed=1))
    batches = tf.data.Dataset.from_tensor_slices(data).batch(BATCH)
    model.fit(batches.skip(first).take(last - first), verbose=0, **options)


def file_of(way, folder):
    return os.path.join(folder, {"keras": "m.keras", "weights": "m.weights.h5"}.get(way, "c"))


def save(model, way, folder):
    path = file_of(way, folder)
    if way == "keras":
        model.save(path)
    elif way == "weights":
        model.save_weights(path)
    else:
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)


def load(strategy, way, folder, optimizer=momentum):
    """Returns the restored model."""
    path = file_of(way, folder)
    if way == "keras":
        with strategy.scope():
            return keras.models.load_model(path)
    model = make(strategy, optimizer)
    if way == "weights":
        with strategy.scope():
            model.optimizer.build(model.trainable_variables)
        model.load_weights(path)
    else:
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).read(path)
    return model


def train(strategy, optimizer=momentum):
    """Trains without a pause; returns the weights."""
    model = make(strategy, optimizer)
    fit(model, 0, BEFORE + AFTER)
    return weights(model)


def optimizer_state(strategy):
    """Returns the variables of several optimizers between two of their updates."""
    model = make(strategy, several)
    fit(model, 0, BEFORE)
    return [variable.numpy() for variable in model.optimizer.variables]


def stop(strategy, way, folder, optimizer=momentum):
    model = make(strategy, optimizer)
    fit(model, 0, BEFORE)
    save(model, way, folder)


def go_on(strategy, way, folder, optimizer=momentum):
    """Resumes from the file; returns the final weights."""
    model = load(strategy, way, folder, optimizer)
    fit(model, BEFORE, BEFORE + AFTER)
    return weights(model)

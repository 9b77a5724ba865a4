"""One of two processes with different arguments; prints the errors.

`agreement_test.py` sets TF_CONFIG and runs `python agreement_worker.py FOLDER`.
"""

import hashlib
import logging
import os
import sys

import keras
import numpy as np
import tensorflow as tf

import terngrad_tf
from terngrad_tf.distribute import PeerError

X = np.random.default_rng(0).uniform(-1, 1, [16, 3]).astype(np.float32)
Y = X @ np.ones([3, 2], np.float32)


class Halve(keras.callbacks.Callback):
    """Halves the learning rate at the end of each epoch."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate = self.model.optimizer.learning_rate / 2


class Print(keras.callbacks.Callback):
    """Writes the learning rate to a file."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        with open(self.path, "a", encoding="utf-8") as file:
            print(epoch, self.model.optimizer.learning_rate.numpy(), file=file)


class Disturb(keras.callbacks.Callback):
    """Changes a weight in the second epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.layers[-1].bias.assign([7.0, 7.0])


def build(strategy, optimizer=None, loss="mse", rate=0.5, extra=0, **compiled):
    with strategy.scope():
        for _ in range(extra):
            keras.layers.Dense(1)  # advances the numbers in Keras' names
        model = keras.Sequential(
            [keras.layers.Dense(8), keras.layers.Dropout(rate), keras.layers.Dense(2)]
        )
        model.compile(optimizer() if optimizer else keras.optimizers.SGD(0.01), loss, **compiled)
    return model


def fit(model, **options):
    options = {"batch_size": 8, "epochs": 1, "verbose": 0, "shuffle": False} | options
    return model.fit(X, Y, **options)


def sgd(**options):
    """Returns a function that makes an SGD optimizer, for the strategy's scope."""
    return lambda: keras.optimizers.SGD(**{"learning_rate": 0.01} | options)


def local_steps():
    return terngrad_tf.DiLoCo("adam", 3, outer=keras.optimizers.SGD(1.0))


def decayed(rate):
    return keras.optimizers.schedules.ExponentialDecay(0.1, 10, rate)


def squares(scale):
    return lambda y, p: scale * tf.reduce_mean(tf.square(y - p), -1)


class Adversaries(keras.Sequential):
    """A model with its own `compile`."""

    def compile(self, other, own_loss=None, own_metric=None, **options):
        super().compile(**options)
        self.other = other
        self.own_loss = own_loss
        self.own_metric = own_metric


def refused(strategy, own):
    """Prints each case's error; `own` returns its first value on the chief, else the second."""
    stop = keras.callbacks.EarlyStopping
    cases = {
        "momentum": lambda: fit(build(strategy, sgd(momentum=own(0.9, 0.5)))),
        "rate": lambda: fit(build(strategy, sgd(learning_rate=own(0.1, 0.2)))),
        "schedule": lambda: fit(build(strategy, sgd(learning_rate=decayed(own(0.5, 0.25))))),
        "loss": lambda: fit(build(strategy, loss=own("mse", "mae"))),
        "lambda": lambda: fit(build(strategy, loss=squares(own(1.0, 2.0)))),
        "metrics": lambda: fit(build(strategy, metrics=own(["mae"], ["mae", "mse"]))),
        "compile": lambda: fit(build(strategy, steps_per_execution=own(1, 2))),
        "model": lambda: fit(build(strategy, rate=own(0.5, 0.25))),
        "callbacks": lambda: fit(build(strategy), callbacks=own([stop()], [])),
        "patience": lambda: fit(build(strategy), callbacks=[stop(patience=own(3, 2))]),
        "own callback": lambda: fit(build(strategy), callbacks=own([], [Halve()])),
        "lambda callback": lambda: fit(
            build(strategy),
            callbacks=keras.callbacks.LearningRateScheduler(
                own(lambda epoch: 0.1, lambda epoch: 0.2)
            ),
        ),
        "epochs": lambda: fit(build(strategy), epochs=own(1, 2)),
        "batch": lambda: fit(build(strategy), batch_size=own(8, 4)),
        "class weight": lambda: fit(build(strategy), class_weight={0: own(1.0, 2.0), 1: 1.0}),
        "validation": lambda: fit(build(strategy), validation_data=own((X, Y), None)),
        "evaluate": lambda: build(strategy, loss=own("mse", "mae")).evaluate(X, Y, verbose=0),
        "predict": lambda: build(strategy).predict(X, batch_size=own(8, 4), verbose=0),
        "method": lambda: own(fit, lambda model: model.evaluate(X, Y, verbose=0))(build(strategy)),
        "two optimizers": lambda: fit(adversaries(strategy, own(0.9, 0.5))),
        "loss of a compile": lambda: fit(adversaries(strategy, loss=own("mse", "mae"))),
        "loss of its own": lambda: fit(
            adversaries(
                strategy, own_loss=keras.losses.BinaryCrossentropy(label_smoothing=own(0.1, 0.2))
            )
        ),
        "metric of its own": lambda: fit(
            adversaries(strategy, own_metric=keras.metrics.TopKCategoricalAccuracy(own(1, 2)))
        ),
        "own loop": lambda: loop(strategy, sgd(nesterov=own(True, False), momentum=0.9)),
        "gradients": lambda: loop(strategy, sgd(), own(4, 5)),
        "float steps": lambda: loop(with_float_steps(own(2, 3)), sgd()),
    }
    for name, case in cases.items():
        try:
            with terngrad_tf.distribute.peer_errors(strategy.tasks):
                case()
            print(f"{name}: passed", flush=True)
        except PeerError as error:
            print(f"{name}: {error}", flush=True)


def adversaries(strategy, momentum=0.9, loss="mse", **own):
    with strategy.scope():
        model = Adversaries([keras.layers.Dense(2)])
        model.compile(sgd(momentum=momentum)(), optimizer="sgd", loss=loss, **own)
    return model


def with_float_steps(count):
    quantization = terngrad_tf.Quantization(float_steps=lambda step: step < count)
    return terngrad_tf.TernGradStrategy(quantization=quantization)


def loop(strategy, make_optimizer, size=4):
    """Runs a custom loop."""
    with strategy.scope():
        weight = keras.Variable(tf.ones([size]))
        optimizer = make_optimizer()

    @tf.function
    def step():
        strategy.run(lambda: optimizer.apply([tf.ones([size])], [weight]))

    step()


def accepted(strategy, own, folder):
    """Trains with differences that are allowed, and with values taken from the chief."""
    model = build(strategy, extra=own(3, 0), metrics=["mae"])
    mine = os.path.join(folder, str(strategy.process_index))
    os.makedirs(mine)
    callbacks = [keras.callbacks.BackupAndRestore(os.path.join(mine, "backup"))]
    if strategy.is_chief:
        callbacks += [
            keras.callbacks.CSVLogger(os.path.join(mine, "log.csv")),
            keras.callbacks.ModelCheckpoint(os.path.join(mine, "best.keras")),
            Print(os.path.join(mine, "own.txt")),
        ]
    fit(model, callbacks=callbacks, verbose=own(2, 0), epochs=2)
    print_state(strategy, model, "callbacks of the chief")
    if strategy.is_chief:
        model.save_weights(os.path.join(mine, "first.weights.h5"))
    fit(model)
    if strategy.is_chief:
        model.load_weights(os.path.join(mine, "first.weights.h5"))
        model.optimizer.learning_rate = 0.5
    expected = model.layers[-1].kernel.numpy() if strategy.is_chief else None
    found = model.evaluate(X, Y, batch_size=8, verbose=0)
    print_state(strategy, model, "weights of the chief", *found)
    if expected is not None:
        np.testing.assert_array_equal(model.layers[-1].kernel.numpy(), expected)
    fit(model, epochs=3, callbacks=own([], [Disturb()]))
    print_state(strategy, model, "weights that a callback disturbed")
    local = build(strategy, local_steps)
    fit(local, epochs=3, batch_size=4)
    print_state(strategy, local, "local steps")
    accumulated = build(strategy, sgd(gradient_accumulation_steps=3, use_ema=True))
    fit(accumulated, epochs=2)
    print_state(strategy, accumulated, "accumulated gradients")
    print_made(strategy, own(5.0, 7.0))


def print_state(strategy, model, what, *numbers):
    """Prints a digest of the weights, and the learning rate."""
    del strategy
    weights = b"".join(weight.numpy().tobytes() for weight in model.weights)
    rate = float(np.asarray(model.optimizer.learning_rate))
    numbers = [f"{number:.6g}" for number in (rate, *numbers)]
    print(what, hashlib.sha256(weights).hexdigest()[:8], *numbers, sep=": ", flush=True)


def print_made(strategy, value):
    """Prints two variables that a step makes, a weight and a statistic, and its value of both."""
    made = []

    @tf.function
    def step():
        def replica():
            if not made:
                made.append(tf.Variable(value))
                made.append(tf.Variable(lambda: tf.random.normal([]) + value, trainable=False))
            return [variable.read_value() for variable in made]

        return strategy.run(replica)

    weight, statistic = (float(number) for number in step())
    print("variables that a step made", statistic, weight, sep=": ", flush=True)


def main():
    (folder,) = sys.argv[1:]
    logging.basicConfig(format="log: %(message)s")
    with terngrad_tf.distribute.exit_on_peer_error():
        strategy = terngrad_tf.TernGradStrategy(
            grad_bits=32, cluster_options=terngrad_tf.ClusterOptions(start_timeout=100)
        )

        def own(chief, other):
            return chief if strategy.is_chief else other

        refused(strategy, own)
        accepted(strategy, own, folder)


if __name__ == "__main__":
    main()

"""Trains for the tests of checkpoints: a small network, several optimizers and kinds of data.

As a script, it is one process, alone or in a cluster: `python programs.py OUTPUT OPTIONS`. OPTIONS
is JSON of `main`'s arguments.
"""

import json
import os
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

import terngrad_tf

EPOCHS = 4
X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(40, 1)).astype(np.float32)
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9),
    "accumulation": lambda: keras.optimizers.SGD(0.01, 0.9, gradient_accumulation_steps=3),
    "diloco": lambda: terngrad_tf.DiLoCo(keras.optimizers.Adam(0.01), sync_every=3),
    "overlap": lambda: terngrad_tf.DiLoCo(
        keras.optimizers.Adam(0.01), sync_every=4, fragments=2, overlap=1
    ),
}


class Adversaries(keras.Model):
    """A generative adversarial network: it has no `call`, and holds several optimizers.

    Args:
        make: returns the discriminator's optimizer.
        inputs: False if the first step builds the layers.
    """

    def __init__(self, make=lambda: keras.optimizers.Adam(0.01), inputs=True):
        super().__init__()
        layers, of = keras.layers, (lambda n: [keras.Input([n])] if inputs else [])
        self.generator = keras.Sequential(
            [*of(2), layers.Dense(4, "relu"), layers.BatchNormalization(), layers.Dense(4)]
        )
        self.discriminator = keras.Sequential([*of(4), layers.Dropout(0.3), layers.Dense(1)])
        self.noise = keras.random.SeedGenerator(5)
        only_first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.steps = tf.Variable(0, trainable=False, aggregation=only_first)
        self.make = make

    def compile(self):
        super().compile()
        self.d_optimizer = self.make()
        if isinstance(self.d_optimizer, terngrad_tf.DiLoCo):
            self.d_optimizer.build(self.discriminator.trainable_variables)
        momentum = keras.optimizers.SGD(0.01, momentum=0.9)
        self.others = {"g": [keras.optimizers.LossScaleOptimizer(momentum, initial_scale=1.0)]}

    def train_step(self, data):
        real, count = data[0], tf.distribute.get_strategy().num_replicas_in_sync
        self.steps.assign_add(1)
        with tf.GradientTape(persistent=True) as tape:
            noise = keras.random.normal([tf.shape(real)[0], 2], seed=self.noise)
            fake = self.generator(noise, training=True)
            score = self.discriminator(fake, training=True)
            difference = score - self.discriminator(real, training=True)
            d_loss, g_loss = tf.reduce_mean(difference) / count, -tf.reduce_mean(score) / count
        for optimizer, loss, net in (
            (self.d_optimizer, d_loss, self.discriminator),
            (self.others["g"][0], g_loss, self.generator),
        ):
            gradients = tape.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return {"loss": d_loss}


ADVERSARIES = {
    "adversaries": Adversaries,
    "accumulating adversaries": lambda: Adversaries(OPTIMIZERS["accumulation"]),
    "local adversaries": lambda: Adversaries(OPTIMIZERS["diloco"]),
    "unbuilt adversaries": lambda: Adversaries(inputs=False),
}


class Stopped(Exception):
    """Stands for any error that ends a program."""


class Stop(keras.callbacks.Callback):
    """Ends training after some batches: by an error, or by a signal to this process."""

    def __init__(self, batches, number=None):
        super().__init__()
        self.left, self.number = batches, number

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            if self.number is None:
                raise Stopped
            os.kill(os.getpid(), self.number)


class Logged(keras.callbacks.Callback):
    """Logs a value that is best in the second epoch."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def on_epoch_end(self, epoch, logs=None):
        logs[self.name] = abs(epoch - 1)


class Poison(keras.callbacks.Callback):
    """Makes a statistic NaN after the first batch."""

    def on_train_batch_end(self, batch, logs=None):
        mean = self.model.layers[1].moving_mean
        mean.assign(np.nan * mean.numpy())


def examples():
    return tf.data.Dataset.from_tensor_slices((X, Y))


def one_by_one():
    signature = (tf.TensorSpec([4]), tf.TensorSpec([1]))
    dataset = tf.data.Dataset.from_generator(
        lambda: zip(X, Y, strict=True), output_signature=signature
    )
    return dataset.batch(8)


class Batches(keras.utils.PyDataset):
    """Batches of 8 examples, which Keras shuffles."""

    def __len__(self):
        return len(X) // 8

    def __getitem__(self, index):
        return X[8 * index : 8 * index + 8], Y[8 * index : 8 * index + 8]


def one_generator(num_batches):
    for number in range(num_batches):
        place = 8 * (number % 5)
        yield X[place : place + 8] + number, Y[place : place + 8]


DATA = {
    "batches": lambda: {"x": Batches()},
    "batches of two threads": lambda: {"x": Batches(workers=2)},
    "filtered": lambda: {"x": examples().shuffle(40).batch(8).filter(lambda x, y: True)},
    "filtered, in parts": lambda: {**DATA["filtered"](), "steps_per_epoch": 4},
    "one generator": lambda: {"x": one_generator(20), "steps_per_epoch": 5},
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 8},
    "shuffled": lambda: {"x": examples().shuffle(40, seed=5).batch(8)},
    "repeated": lambda: {
        "x": examples().shuffle(40, seed=5).repeat().batch(8),
        "steps_per_epoch": 4,
    },
    "generated": lambda: {"x": one_by_one()},
}


def make(strategy, optimizer, units=8, is_plain=False, **options):
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    with strategy.scope():
        if optimizer in ADVERSARIES:
            model = ADVERSARIES[optimizer]()
            model.compile()
            return model
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(units, activation="relu")])
        if not is_plain:  # layers that depend on the number of replicas
            model.add(keras.layers.BatchNormalization())
            model.add(keras.layers.Dropout(0.3))
        model.add(keras.layers.Dense(1))
        model.compile(OPTIMIZERS[optimizer](), "mse", **options)
    return model


def fit(model, data, callbacks=(), epochs=EPOCHS, **options):
    model.fit(**DATA[data](), epochs=epochs, verbose=0, callbacks=list(callbacks), **options)
    return values(model)


def values(model):
    """Returns the training state, except for state of a single replica."""
    if isinstance(model, Adversaries):
        held = model.d_optimizer.variables + model.others["g"][0].variables
        return [v.numpy() for v in [*model.variables, *held, model.steps]]
    local = terngrad_tf.distribute.local_steps_optimizer(model.optimizer)
    optimizer = model.optimizer.variables if local is None else local.shared_variables
    return [v.numpy() for v in model.variables + optimizer]


def main(
    folder=None,
    optimizers=("adam",),
    data="arrays",
    after=None,
    number=None,
    num_copies=0,
    monitor=None,
    poisoned=None,
    **strategy,
):
    """Trains with each optimizer; returns their values.

    Args:
        folder: folder of checkpoints, with one subfolder an optimizer. Default: no checkpoints.
        optimizers: names of optimizers, or of adversaries.
        data: name of the data.
        after: number of batches of the last optimizer after which the process gets the signal
            `number`. Default: no signal.
        number: number of a signal.
        num_copies, monitor: arguments of `Checkpoint`; the chief alone logs the monitored value.
        poisoned: index of a process whose statistics become NaN in the last optimizer's run.
        **strategy: arguments of `TernGradStrategy`.
    """
    strategy, results, renamed = terngrad_tf.TernGradStrategy(**strategy), {}, []

    def note(event, names):
        if event == "os.rename" and "checkpoint-" in str(names[1]):
            renamed.append(names)

    sys.addaudithook(note)
    for name in optimizers:
        callbacks = []
        if folder is not None:
            place = os.path.join(folder, name)
            options = {"num_copies": num_copies, "monitor": monitor}
            callbacks.append(terngrad_tf.Checkpoint(place, 2, **options))
            if monitor and strategy.is_chief:
                callbacks.insert(0, Logged(monitor))
        if poisoned == strategy.process_index and name == optimizers[-1]:
            callbacks.insert(0, Poison())
        if after and name == optimizers[-1]:
            callbacks.append(Stop(after, number))
        model = make(strategy, name)
        for position, array in enumerate(fit(model, data, callbacks)):
            results[f"{name}/{position}"] = array
    # A checkpoint is written under a temporary name and renamed.
    results["renamed"] = np.array(len(renamed))
    return results


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    np.savez(sys.argv[1], **main(**json.loads(sys.argv[2])))

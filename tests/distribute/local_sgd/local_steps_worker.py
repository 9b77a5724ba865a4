"""One process of a cluster whose replicas take local steps; run by `local_steps_test.py`."""

import os
import time

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf import DiLoCo, TernGradStrategy
from terngrad_tf.distribute import Quantization, StragglerMonitor, broadcast_variables
from tests.distribute import processes
from tests.distribute.local_sgd.local_steps_cases import (
    NUM_FEATURES,
    adamw,
    data,
    nesterov,
    network,
    of_unknown_length,
)

TIMEOUT_SECONDS = 60


class WaitForPeer(keras.callbacks.Callback):
    """The chief waits in its first step until the other process has taken its third."""

    def __init__(self, is_chief, path):
        super().__init__()
        self.is_chief, self.path = is_chief, path

    def on_train_batch_end(self, batch, logs=None):
        if not self.is_chief and batch == 2:
            open(self.path, "w").close()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.is_chief and batch == 0 and not os.path.exists(self.path):
            assert time.monotonic() < deadline, "a step waits for the other process"
            time.sleep(0.05)


class Logs(keras.callbacks.Callback):
    """Records the loss that callbacks receive."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


class SlowSteps(keras.callbacks.Callback):
    """Sleeps after each step, if told to, and records the seconds since the end of the first."""

    def __init__(self, sleeps):
        super().__init__()
        self.sleeps, self.begin = sleeps, None

    def on_train_batch_end(self, batch, logs=None):
        self.begin = self.begin or time.perf_counter()
        if self.sleeps:
            time.sleep(0.1)

    def on_train_end(self, logs=None):
        self.seconds = time.perf_counter() - self.begin


def compiled(strategy, sync_every=4, **options):
    with strategy.scope():
        model = network(batch_norm=True)
        model.compile(DiLoCo(adamw(), sync_every, outer=nesterov(), **options), "mse")
    return model


def batches(strategy, first_step=0):
    """This process's half of each batch, divided as in `local_steps_cases.trained_apart`."""
    dataset = tf.data.Dataset.from_tensor_slices(data(48)).batch(12).repeat().skip(first_step)
    part = strategy.process_index

    def half(x, y):
        return x[6 * part : 6 * part + 6], y[6 * part : 6 * part + 6]

    return strategy.distribute_datasets_from_function(lambda context: dataset.map(half))


def train(config):
    """Weights after steps in which one process runs ahead, losses, and an evaluation."""
    strategy = TernGradStrategy(
        quantization=Quantization(
            grad_bits=config["grad_bits"], bits_per_element=config.get("bits_per_element")
        )
    )
    options = {"fragments": config.get("fragments", 1), "overlap": config.get("overlap", 0)}
    model, logs = compiled(strategy, **options), Logs()
    callbacks: list[keras.callbacks.Callback] = [logs]
    if options["fragments"] == 1:
        path = os.path.join(config["folder"], f"third_step_{config['grad_bits']}")
        callbacks.append(WaitForPeer(strategy.is_chief, path))
    model.fit(batches(strategy), steps_per_epoch=6, epochs=2, verbose=0, callbacks=callbacks)
    x, y = data(8, seed=1)
    evaluated = model.evaluate(x, y, batch_size=4, verbose=0)
    weights = {str(i): weight for i, weight in enumerate(model.get_weights())}
    return {**weights, "losses": logs.losses, "evaluated": evaluated}


def waits(config):
    """The longest wait of a process in all steps together, and the seconds of these steps."""
    strategy, found = TernGradStrategy(), {}
    slow = SlowSteps(sleeps=not strategy.is_chief)
    monitor = StragglerMonitor(20, lambda line: None, lambda scalars, step: found.update(scalars))
    compiled(strategy, sync_every=10).fit(
        batches(strategy), steps_per_epoch=21, verbose=0, callbacks=[slow, monitor]
    )
    return {"waits": 20 * max(found.values()), "seconds": slow.seconds}


class OwnStep(keras.Sequential):
    """Returns the number of the step in place of metrics."""

    def train_step(self, data):
        super().train_step(data)
        return {"step": tf.cast(self.optimizer.iterations, tf.float32)}


def own_step(config):
    """History of a model's own step, in epochs without an exchange that is due."""
    histories = {}
    for name, options in (("number", {"sync_every": 32}), ("time", {"sync_seconds": 3600.0})):
        strategy = TernGradStrategy()
        with strategy.scope():
            model = OwnStep([keras.Input([NUM_FEATURES]), keras.layers.Dense(1)])
            model.compile(DiLoCo("sgd", **options), "mse")
        fitted = model.fit(batches(strategy), steps_per_epoch=4, epochs=3, verbose=0)
        histories[name] = fitted.history["step"]
    return histories


def unknown_length(config):
    """Weights after epochs of 4 steps; a fifth would exchange."""
    x, y = data(48)
    known = {"x": x, "y": y, "batch_size": 12, "shuffle": False}
    results = {}
    for name, arguments in (("known", known), ("unknown", {"x": of_unknown_length(x, y)})):
        model = compiled(TernGradStrategy(grad_bits=32), 5)
        model.fit(**arguments, epochs=3, verbose=0)
        results[name] = model.get_weights()[0]
    return results


def resume(config):
    """Weights of a run that the chief saved in an exchange, and of the undisturbed one."""
    path = os.path.join(config["folder"], "saved")
    results = {}
    for name in ("undisturbed", "resumed"):
        strategy = TernGradStrategy()
        model = compiled(strategy, fragments=2, overlap=1)
        optimizer = model.optimizer
        with strategy.scope():
            optimizer.build(model.trainable_variables)
        optimizer.replica_state.add(model.non_trainable_variables)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)

        def save(optimizer=optimizer, checkpoint=checkpoint, strategy=strategy):
            optimizer.replica_state.gather()
            if strategy.is_chief:
                checkpoint.write(path)
            optimizer.replica_state.forget()

        if name == "undisturbed":
            first_step = 0
            before = optimizer.replica_state.get()
            optimizer.replica_state.scatter()
            # The chief restored nothing; the learning rate, for one, is not 0.
            results["first"] = list(map(np.array_equal, before, optimizer.replica_state.get()))
            callback = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda batch, logs: save() if batch == 5 else None
            )
        else:
            first_step, callback = 6, keras.callbacks.Callback()
            if strategy.is_chief:
                checkpoint.read(path).assert_existing_objects_matched()
            broadcast_variables(
                strategy, [v.value for v in model.variables + optimizer.shared_variables]
            )
            optimizer.replica_state.scatter()
        model.fit(
            batches(strategy, first_step),
            steps_per_epoch=11 - first_step,
            verbose=0,
            callbacks=[callback],
        )
        for i, weight in enumerate(model.get_weights()):
            results[f"{name}/{i}"] = weight
    return results


if __name__ == "__main__":
    processes.main(
        {
            "float": train,
            "ternary": train,
            "in_turn": train,
            "overlapping": train,
            "resume": resume,
            "unknown_length": unknown_length,
            "own_step": own_step,
            "waits": waits,
        }
    )

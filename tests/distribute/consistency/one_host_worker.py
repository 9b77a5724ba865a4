"""One process of a cluster whose chief makes variables and files that others do not make.

Run by `one_host_test.py` with TF_CONFIG set: `python one_host_worker.py OUTPUT.npz JSON`.
"""

import contextlib
import hashlib
import os

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import PeerError, TernGradStrategy, broadcast_variables, peer_errors
from tests.distribute import processes

NUM_EXAMPLES = 24


def data():
    rng = np.random.default_rng(0)
    return rng.random((NUM_EXAMPLES, 4)).astype(np.float32), np.ones(NUM_EXAMPLES, np.float32)


def build(strategy, **options):
    """A compiled model whose initial weights differ between processes and between runs."""
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([4]),
                keras.layers.Dense(3),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **options)
    return model


def digest(variables):
    return hashlib.sha256(b"".join(v.numpy().tobytes() for v in variables)).hexdigest()


def weights(model):
    return digest(model.variables + model.optimizer.variables)


class Alone(keras.callbacks.Callback):
    """Copies, saves and restores the model after each epoch, on this process alone."""

    def __init__(self, folder, scope):
        super().__init__()
        self._folder = folder
        self._scope = scope

    def on_epoch_end(self, epoch, logs=None):
        with self._scope():
            copy = keras.models.clone_model(self.model)
            copy.set_weights(self.model.get_weights())
            copy.save(os.path.join(self._folder, "copy.keras"))
            keras.models.load_model(os.path.join(self._folder, "copy.keras"))
            tf.Variable(tf.random.normal([3]))


def saves(model, folder, scope):
    """Saves and reloads a model in every way."""
    with scope():
        path = os.path.join(folder, "model")
        model.save(f"{path}.keras")
        model.save(f"{path}.h5")
        model.save_weights(f"{path}.weights.h5")
        model.load_weights(f"{path}.weights.h5")
        model.export(f"{path}_exported", verbose=False)
        checkpoint = tf.train.Checkpoint(
            model=model, optimizer=model.optimizer, step=tf.Variable(3, dtype=tf.int64)
        )
        manager = tf.train.CheckpointManager(checkpoint, f"{path}_checkpoints", max_to_keep=1)
        checkpoint.restore(manager.save()).assert_consumed()
        loaded = keras.models.load_model(f"{path}.keras")
        keras.models.load_model(f"{path}.h5", compile=False)
        assert digest(loaded.weights) == digest(model.weights)
    assert len(keras.models.load_model(f"{path}.keras").weights) == len(model.weights)
    exported = tf.saved_model.load(f"{path}_exported")
    zeros = tf.zeros([2, 4])
    np.testing.assert_allclose(exported.serve(zeros), model(zeros), rtol=1e-5, atol=1e-6)


def chief_writes(config):
    """Trains two models; the chief alone writes before, during and after, in scope and outside."""
    strategy = TernGradStrategy(config["num_local"])
    x, y = data()
    results = {"digests": [], "initial": []}
    for number, scope in enumerate((strategy.scope, contextlib.nullcontext)):
        model = build(strategy)
        folder = os.path.join(config["folder"], f"model_{number}")
        backup = f"{folder}_backup_{strategy.process_index}"
        callbacks = [
            keras.callbacks.EarlyStopping("loss", restore_best_weights=True),
            # The only callback that writes and must run on all processes.
            keras.callbacks.BackupAndRestore(backup),
        ]
        results["initial"].append(digest(model.weights))
        if strategy.is_chief:
            os.makedirs(folder)
            saves(model, folder, scope)
            name = os.path.join(folder, "{epoch}")
            callbacks += [
                keras.callbacks.ModelCheckpoint(f"{name}.keras"),
                keras.callbacks.ModelCheckpoint(f"{name}.weights.h5", save_weights_only=True),
                keras.callbacks.TensorBoard(folder, histogram_freq=1, write_graph=False),
                Alone(folder, scope),
            ]
        with scope():
            model.fit(
                *(x, y),
                batch_size=8,
                epochs=2,
                verbose=0,
                validation_data=(x, y),
                callbacks=callbacks,
            )
        results["digests"].append(weights(model))
        if strategy.is_chief:
            saves(model, folder, scope)
    return results


def first_uses(config):
    """Digests of a model's weights after each kind of first use."""
    strategy = TernGradStrategy(config["num_local"])
    x, y = data()
    results = {}

    def note(name, variables):
        results[name] = digest(variables)

    model = build(strategy)
    results["own"] = digest(model.weights)
    for name, use in (
        ("fit", lambda model: model.fit(x, y, batch_size=8, verbose=0)),
        ("evaluate", lambda model: model.evaluate(x, y, batch_size=8, verbose=0)),
        ("predict", lambda model: model.predict(x, batch_size=8, verbose=0)),
        ("train_on_batch", lambda model: model.train_on_batch(x, y)),
        ("broadcast", lambda model: broadcast_variables(strategy, model.variables)),
    ):
        model = build(strategy)
        use(model)
        note(name, model.weights)
    model = build(strategy, steps_per_execution=3)
    model.fit(x, y, batch_size=8, verbose=0)
    note("steps_per_execution", model.variables + model.optimizer.variables)
    model = build(strategy, run_eagerly=True)
    model.fit(x, y, batch_size=8, verbose=0)
    note("run_eagerly", model.variables + model.optimizer.variables)

    with strategy.scope():
        plain = [tf.Variable(tf.random.normal([2])) for _ in range(6)]
        if strategy.is_chief:
            # The other processes never use it.
            plain.insert(0, tf.Variable(tf.random.normal([5])))
            plain.pop(0).assign_add(tf.ones([5]))

    def loss():
        return tf.reduce_sum(plain[0] * plain[1])

    inner = tf.function(lambda: tf.reduce_sum(plain[2] + 1.0))
    strategy.run(loss)
    strategy.run(inner)
    strategy.run(tf.function(lambda: plain[3] + 1.0))
    tf.function(lambda: strategy.run(lambda: plain[4].assign_add(plain[4])))()
    strategy.run(lambda: inner() + plain[5])
    note("plain", plain)

    with strategy.scope():
        variable = tf.Variable(tf.zeros([3 + strategy.process_index]), trainable=False)
    try:
        with peer_errors(strategy.tasks):
            strategy.run(tf.function(lambda: tf.reduce_sum(variable)))
    except PeerError as error:
        results["error"] = str(error)
    return results


if __name__ == "__main__":
    processes.main({"chief_writes": chief_writes, "first_uses": first_uses})

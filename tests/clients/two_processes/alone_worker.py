"""One of two processes that differ in what they call; prints the error.

`agreement_test.py` sets TF_CONFIG and runs `python alone_worker.py CASE FOLDER`.
"""

import logging
import os
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import terngrad_tf
from terngrad_tf.common.places import places
from terngrad_tf.distribute import PeerError
from terngrad_tf.distribute.communication import watchdog

X = np.random.default_rng(0).uniform(-1, 1, [16, 3]).astype(np.float32)
Y = X @ np.ones([3, 2], np.float32)


class StopAfterEpoch(keras.callbacks.Callback):
    """Ends training after an epoch, without notice to the strategy."""

    def on_epoch_end(self, epoch, logs=None):
        vars(self.model)["stop_" + "training"] = True


class Stop(keras.callbacks.Callback):
    """Ends training after a few steps, without notice to the strategy."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            vars(self.model)["stop_" + "training"] = True


def build(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    return model


def fit(model, **options):
    model.fit(X, Y, batch_size=4, verbose=0, shuffle=False, **options)


def evaluates(strategy, folder):
    """The chief saves alone, waits for a slow process, and evaluates alone."""
    model = build(strategy)
    fit(model)
    if strategy.is_chief:
        model.save(os.path.join(folder, "model.keras"))
        keras.saving.load_model(os.path.join(folder, "model.keras"))
        print("saved", flush=True)
        os.mkdir(os.path.join(folder, "saved"))
    else:
        while not os.path.exists(os.path.join(folder, "saved")):
            time.sleep(0.1)
        time.sleep(5)
    fit(model)
    print("trained", flush=True)
    if strategy.is_chief:
        model.evaluate(X, Y, verbose=0)


def stops(strategy, folder):
    """Worker 1 stops training early, and evaluates."""
    model = build(strategy)
    fit(model, epochs=2, callbacks=[] if strategy.is_chief else [Stop()])
    model.evaluate(X, Y, verbose=0)


def stops_after_an_epoch(strategy, folder):
    """Worker 1 ends `fit` where the chief begins its second epoch."""
    fit(build(strategy), epochs=2, callbacks=[] if strategy.is_chief else [StopAfterEpoch()])


def saves_to_one_path(strategy, folder):
    """Both processes save to the same files at the same time, and load them."""
    model, folder = build(strategy), os.path.dirname(folder)
    fit(model)
    weights = model.get_weights()
    for _ in range(20):
        for name in ("all.keras", "all.h5", "all.weights.h5"):
            path = os.path.join(folder, name)
            (model.save_weights if name.endswith(".weights.h5") else model.save)(path)
            model.load_weights(path)
        np.testing.assert_array_equal(model.get_weights()[0], weights[0])
        keras.saving.load_model(os.path.join(folder, "all.keras"))
    fit(model)
    files = {name for name in os.listdir(folder) if name.startswith((".", "all"))}
    print("left:", *sorted(files), flush=True)


def evaluates_in_a_callback(strategy, folder):
    """All evaluate and predict in a callback, then worker 1 alone evaluates there."""
    model = build(strategy)

    def evaluate(epoch, logs):
        if epoch == 0 or not strategy.is_chief:
            model.evaluate(X, Y, verbose=0)
            model.predict(X, verbose=0)
        print(f"epoch {epoch}", flush=True)

    callback = keras.callbacks.LambdaCallback(on_epoch_end=evaluate)
    fit(model, epochs=3, callbacks=[callback], validation_data=(X, Y))


def predicts_otherwise_in_a_callback(strategy, folder):
    """Worker 1 predicts with another size of batches, in a callback."""
    model, size = build(strategy), 8 if strategy.is_chief else 4
    callback = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: model.predict(X, batch_size=size, verbose=0)
    )
    fit(model, callbacks=[callback])


def ends(strategy, folder):
    """The chief ends before worker 1."""
    model = build(strategy)
    fit(model)
    if not strategy.is_chief:
        fit(model)


def fails(strategy, folder):
    """Worker 1 fails while the chief waits for it."""
    model = build(strategy)
    fit(model)
    if not strategy.is_chief:
        raise ValueError("no file\nof data")
    model.predict(X, verbose=0)


def compares(strategy, folder):
    """Worker 1 compares flags while the chief trains."""
    model = build(strategy)
    if strategy.is_chief:
        fit(model)
    else:
        terngrad_tf.distribute.compare_processes(strategy, "flags", {"batch_size": 4})


def functions(strategy):
    """Returns a custom loop in one function, and a single step for loops in Python."""
    with strategy.scope():
        weight = keras.Variable(tf.ones([3]))
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([weight])

    def train_step():
        optimizer.apply([tf.ones([3])], [weight])

    def valid_step():
        return tf.distribute.get_replica_context().all_reduce("sum", weight + 0.0)

    @tf.function
    def epoch(num_train, num_valid):
        for _ in tf.range(num_train):
            strategy.run(train_step)
        for _ in tf.range(num_valid):
            strategy.run(valid_step)
        return strategy.reduce("SUM", tf.ones([]), axis=None)

    @tf.function
    def step():
        strategy.run(train_step)

    for _ in range(2):
        epoch(tf.constant(100), tf.constant(2))
        step()
    print("trained", flush=True)
    return epoch, step


def takes_a_step_more(strategy, folder):
    """The chief takes one more step of the loop in a function, while worker 1 validates."""
    epoch, _ = functions(strategy)
    epoch(tf.constant(3 if strategy.is_chief else 2), tf.constant(2))


def validates_once_more(strategy, folder):
    """The chief validates once more, while worker 1 is in the function's last reduction."""
    epoch, _ = functions(strategy)
    epoch(tf.constant(1), tf.constant(3 if strategy.is_chief else 2))


def steps_while_the_other_fits(strategy, folder):
    """The chief takes one more step of a loop in Python, while worker 1 calls `fit`."""
    _, step = functions(strategy)
    model = build(strategy)
    for _ in range(3 if strategy.is_chief else 2):
        step()
    fit(model)


def steps_after_the_other_ended(strategy, folder):
    """The chief takes one more step after worker 1 ended."""
    _, step = functions(strategy)
    if strategy.is_chief:
        time.sleep(3)  # worker 1 exits meanwhile
        step()


def is_killed(strategy, folder):
    """Worker 1 is killed while the chief waits without an exchange."""
    fit(build(strategy))
    if not strategy.is_chief:
        print("killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    with places.at("a place of a test"):
        for _ in range(200):
            watchdog.check()
            time.sleep(0.1)


def main():
    case, folder = sys.argv[1:]
    logging.basicConfig(format="log: %(message)s")
    # A watchdog that reports within seconds instead of a minute.
    watchdog.ASK_SECONDS, watchdog.LOOK_SECONDS, watchdog.TELL_SECONDS = 1.0, 0.2, 2.0
    strategy = terngrad_tf.TernGradStrategy(
        grad_bits=32, cluster_options=terngrad_tf.ClusterOptions(start_timeout=100)
    )
    try:
        with terngrad_tf.distribute.peer_errors(strategy.tasks):
            globals()[case](strategy, folder)
    except PeerError as error:
        print(f"error: {error}", flush=True)
        raise SystemExit(3) from None


if __name__ == "__main__":
    main()

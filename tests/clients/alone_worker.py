"""One of two processes of which one does alone what all must do; prints what it is told.

Run with TF_CONFIG set by `alone_test.py`: `python alone_worker.py CASE FOLDER`.
"""

import logging
import os
import sys
import time

import keras
import numpy as np

import terngrad_tf
from terngrad_tf.distribute import PeerError
from terngrad_tf.distribute.communication import watchdog

X = np.random.default_rng(0).uniform(-1, 1, [16, 3]).astype(np.float32)
Y = X @ np.ones([3, 2], np.float32)


class Stop(keras.callbacks.Callback):
    """Ends training after a few steps, in a way that nobody can foresee."""

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
    """The chief alone saves, then waits for a slow process, then alone evaluates."""
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
    """A process alone ends training, and evaluates."""
    model = build(strategy)
    fit(model, epochs=2, callbacks=[] if strategy.is_chief else [Stop()])
    model.evaluate(X, Y, verbose=0)


def ends(strategy, folder):
    """The chief alone has come to its end."""
    model = build(strategy)
    fit(model)
    if not strategy.is_chief:
        fit(model)


def fails(strategy, folder):
    """A process fails while another waits for it."""
    model = build(strategy)
    fit(model)
    if not strategy.is_chief:
        raise ValueError("no file\nof data")
    model.predict(X, verbose=0)


def compares(strategy, folder):
    """A process waits for flags that the chief, which trains, does not compare."""
    model = build(strategy)
    if strategy.is_chief:
        fit(model)
    else:
        terngrad_tf.distribute.compare_processes(strategy, "flags", {"batch_size": 4})


def main():
    case, folder = sys.argv[1:]
    logging.basicConfig(format="log: %(message)s")
    # Seconds, not a minute.
    watchdog.ASK_SECONDS, watchdog.LOOK_SECONDS, watchdog.TELL_SECONDS = 1.0, 0.2, 2.0
    strategy = terngrad_tf.TernGradStrategy(
        grad_bits=32, cluster_options=terngrad_tf.ClusterOptions(start_timeout=100)
    )
    try:
        globals()[case](strategy, folder)
    except PeerError as error:
        print(f"error: {error}", flush=True)
        raise SystemExit(3) from None


if __name__ == "__main__":
    main()

"""One process of a cluster in which something goes wrong; prints a line for each event.

Run with TF_CONFIG set by `failures_test.py`, `links_test.py` and `distance_test.py`:
`python failing_worker.py JSON`.
"""

import hashlib
import json
import os
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import (
    ClusterOptions,
    DiLoCo,
    PeerError,
    StragglerMonitor,
    TernGradStrategy,
    cluster_from_tf_config,
    compare_processes,
    peer_errors,
)
from terngrad_tf.distribute.cluster import rendezvous
from terngrad_tf.distribute.communication import peers
from terngrad_tf.distribute.private.collectives import process_group
from tests.distribute import strategy_options

BATCH = 6
REPORT_EVERY = 8


class Steps(keras.callbacks.Callback):
    """Prints each step, pauses after it, and kills this process at `die_at` as `kill -9` does."""

    def __init__(self, die_at, pause):
        super().__init__()
        self.die_at = die_at
        self.pause = pause

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, batch, logs=None):
        print(f"step {batch}", flush=True)
        time.sleep(self.pause)


def train(strategy, *, units=5, num_steps=40, nan_at=None, die_at=None, pause=0.0, sync_every=0):
    """Trains by stock `fit`; this worker's part of batch `nan_at` is NaN.

    If `sync_every` is not 0, trains with local steps.

    Returns:
        A digest of the weights.
    """
    keras.utils.set_random_seed(1)
    x = np.ones((BATCH * num_steps, 4), np.float32)
    if nan_at is not None:
        x[BATCH * nan_at : BATCH * (nan_at + 1)] = np.nan
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(units), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.001)
        model.compile(DiLoCo(optimizer, sync_every) if sync_every else optimizer, "mse")
    callbacks = [
        Steps(die_at, pause),
        keras.callbacks.TerminateOnNaN(),
        StragglerMonitor(REPORT_EVERY, lambda line: print(f"waits: {line}", flush=True)),
    ]
    # Processes do not compare their data under this policy.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((x, np.ones(len(x)))).batch(BATCH)
    model.fit(data.with_options(options), verbose=0, callbacks=callbacks)
    return hashlib.sha256(b"".join(w.numpy().tobytes() for w in model.weights)).hexdigest()


def main(config):
    """Compares options, then trains, as `config` specifies. Returns the exit status."""
    if "register_seconds" in config:
        process_group._REGISTER_SECONDS = config["register_seconds"]
    if config.get("dies_when_met"):
        rendezvous.wait_for_peers(peers.tasks_of(cluster_from_tf_config()), config["start_timeout"])
        os.kill(os.getpid(), signal.SIGKILL)
    for options in config.get("strategies", []):
        try:
            TernGradStrategy(
                **strategy_options.arguments(start_timeout=config["start_timeout"], **options)
            )
        except PeerError as error:
            print(f"refused: {error}", flush=True)
    try:
        strategy = TernGradStrategy(
            cluster_options=ClusterOptions(start_timeout=config["start_timeout"])
        )
        if "metadata" in config:
            try:
                compare_processes(strategy, "flags", config["metadata"])
            except PeerError as error:
                print(f"refused: {error}", flush=True)
        with peer_errors(strategy.tasks):
            for options in config.get("train", []):
                print(f"trained: {train(strategy, **options)}", flush=True)
    except PeerError as error:
        print(f"error: {error}", flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))

"""A user's program whose workers come and go, with `Checkpoint`; see `elastic_test.py`."""

import argparse

import keras
import numpy as np

from terngrad_tf.checkpoints import Checkpoint
from terngrad_tf.distribute import (
    TernGradStrategy,
    cluster_from_tf_config,
    join_cluster,
    run_supervised,
)

EPOCHS = 100


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    values = parser.parse_args()
    folder = values.folder
    membership = join_cluster(
        cluster_from_tf_config(),
        folder,
        lambda: Checkpoint.newest_step(folder),
        num_copies=2,
        join_timeout=3,
    )
    print(membership.describe(), flush=True)
    strategy = TernGradStrategy(cluster_resolver=membership.cluster_resolver)
    x = np.linspace(-1, 1, 240, dtype=np.float32).reshape(80, 3)
    y = x @ np.array([[1.0], [2.0], [3.0]], np.float32)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    told = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: print(
            "epoch", epoch + 1, "of", len(membership.members), "workers", flush=True
        )
    )
    told.runs_on_all_processes = True
    callbacks = [Checkpoint(folder, membership=membership), told]
    model.fit(x, y, batch_size=8, epochs=values.epochs, callbacks=callbacks, verbose=0)
    print("loss", model.evaluate(x, y, batch_size=8, verbose=0), flush=True)


if __name__ == "__main__":
    run_supervised(main, max_restarts=5)

"""A user's program whose workers come and go; see `elastic_program_test.py`."""

import argparse
import pathlib

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import (
    TakeInWorkers,
    TernGradStrategy,
    broadcast_variables,
    cluster_from_tf_config,
    join_cluster,
    run_on_chief,
    run_supervised,
)

EPOCHS = 150


class Save(keras.callbacks.Callback):
    """Saves after each epoch on workers that keep files, then reports the save."""

    def __init__(self, manager, membership):
        super().__init__()
        self.manager, self.membership = manager, membership

    def on_epoch_end(self, epoch, logs=None):
        if self.membership.saves:
            self.manager.save(epoch + 1)
            self.membership.saved(epoch + 1)
        print("epoch", epoch + 1, "of", len(self.membership.members), "workers", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder

    def newest():
        path = tf.train.latest_checkpoint(folder)
        return int(path.rpartition("-")[2]) if path else None

    membership = join_cluster(
        cluster_from_tf_config(), folder, newest, num_copies=2, join_timeout=3
    )
    print(membership.describe(), flush=True)
    strategy = TernGradStrategy(cluster_resolver=membership.cluster_resolver)
    x = np.linspace(-1, 1, 240, dtype=np.float32).reshape(80, 3)
    batches = tf.data.Dataset.from_tensor_slices((x, x @ [[1.0], [2.0], [3.0]])).batch(8)
    with strategy.scope():
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)

    def restore():
        path = manager.restore_or_initialize()
        return int(path.rpartition("-")[2]) if path else 0

    first = run_on_chief(strategy, "first epoch", restore)
    broadcast_variables(strategy, [*model.variables, *model.optimizer.variables])
    callbacks = [Save(manager, membership), TakeInWorkers(strategy, membership)]
    model.fit(batches, initial_epoch=first, epochs=EPOCHS, callbacks=callbacks, verbose=0)
    print("loss", model.evaluate(batches, verbose=0), flush=True)


if __name__ == "__main__":
    run_supervised(main, max_restarts=5)

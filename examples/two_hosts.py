"""One program on two hosts, which `TF_CONFIG` names; a stopped run resumes when restarted.

    TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
                "task": {"type": "worker", "index": 0}}' python examples/two_hosts.py

on the first host, and with `"index": 1` on the second. Only the first host writes to `run`.
"""

import keras
import sklearn.datasets
import tensorflow as tf

import terngrad_tf
from terngrad_tf.distribute import broadcast_variables, run_on_chief

EPOCHS = 6


class SaveCheckpoint(keras.callbacks.Callback):
    """Saves at the end of each epoch, on the chief only."""

    def __init__(self, manager):
        super().__init__()
        self.manager = manager

    def on_epoch_end(self, epoch, logs=None):
        self.manager.save(epoch + 1)


def main(strategy):
    digits = sklearn.datasets.load_digits()
    images = digits.images[..., None].astype("float32") / 16.0
    # Each host takes half of every batch.
    train = tf.data.Dataset.from_tensor_slices((images, digits.target)).shuffle(1797, seed=0)

    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input(shape=(8, 8, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
        model.optimizer.build(model.trainable_variables)

    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(checkpoint, "run", max_to_keep=2)

    def restore():
        path = manager.restore_or_initialize()
        return int(path.rpartition("-")[2]) if path else 0

    # All hosts continue from the checkpoint that the chief read.
    first = run_on_chief(strategy, "the first epoch", restore)
    broadcast_variables(strategy, [*model.variables, *model.optimizer.variables])
    callbacks = [SaveCheckpoint(manager)] if strategy.is_chief else []

    print(f"host {strategy.process_index} of {strategy.num_processes} starts at epoch {first}")
    model.fit(train.batch(64), initial_epoch=first, epochs=EPOCHS, callbacks=callbacks, verbose=2)
    print(f"received a step: {strategy.traffic}")


if __name__ == "__main__":
    # If the other host fails, one line names it, and the exit status is 3.
    with terngrad_tf.distribute.exit_on_peer_error():
        main(terngrad_tf.TernGradStrategy())

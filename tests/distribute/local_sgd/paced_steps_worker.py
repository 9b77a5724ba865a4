"""One process of a cluster with one slower process; run by `paced_steps_test.py`."""

import time

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf import DiLoCo, TernGradStrategy
from tests.distribute import processes
from tests.distribute.local_sgd.paced_steps_cases import BATCH_SIZES, inner, network, outer, part

EPOCHS = 2
SLEEP_SECONDS = (0.002, 0.1)


class Steps(keras.callbacks.Callback):
    """Records the results of each step of `fit`."""

    def __init__(self):
        super().__init__()
        self.own, self.since_exchange, self.losses, self.weights = [], [], [], []

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        self.own.append(optimizer.num_own_steps)
        self.since_exchange.append(optimizer.steps_since_exchange)
        self.losses.append(logs["loss"])
        self.weights.append(self.model.get_weights()[0][:, 0])


def batches(strategy, first_step=0):
    """This process's examples without end; each batch takes it a while."""
    process = strategy.process_index
    x, y = part(process)

    def wait(index):
        time.sleep(SLEEP_SECONDS[process])
        return index

    def slow(*batch):
        waits = tf.numpy_function(wait, [tf.constant(0)], tf.int32)
        with tf.control_dependencies([waits]):
            return tf.nest.map_structure(tf.identity, batch)

    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH_SIZES[process])
    dataset = dataset.skip(first_step).map(slow)
    return strategy.distribute_datasets_from_function(lambda context: dataset)


def compiled(strategy, seconds=0.25, **options):
    with strategy.scope():
        model = network()
        optimizer = DiLoCo(inner(), sync_seconds=seconds, outer=outer())
        model.compile(optimizer, "mse", **options)
    return model


def train(config):
    """The callbacks' records, and the final weights."""
    strategy = TernGradStrategy(grad_bits=config["grad_bits"])
    options = {"steps_per_execution": config.get("steps_per_execution", 1)}
    model, steps = compiled(strategy, **options), Steps()
    history = model.fit(
        batches(strategy), steps_per_epoch=150, epochs=EPOCHS, verbose=0, callbacks=[steps]
    )
    return {
        "own": steps.own,
        "since_exchange": steps.since_exchange,
        "losses": steps.losses,
        "seen": np.stack(steps.weights),
        "weights": model.get_weights()[0][:, 0],
        "epoch_losses": history.history["loss"],
        "traffic": strategy.traffic.received_bytes,
    }


def refused(config):
    """The error message for a finite data set."""
    strategy = TernGradStrategy(grad_bits=32)
    model = compiled(strategy)
    dataset = tf.data.Dataset.from_tensor_slices(part(strategy.process_index)).batch(8)
    try:
        model.fit(strategy.distribute_datasets_from_function(lambda context: dataset), verbose=0)
    except ValueError as error:
        return {"message": str(error)}
    return {"message": ""}


if __name__ == "__main__":
    processes.main({"float": train, "ternary": train, "executions": train, "refused": refused})

"""One process of a cluster with `DiLoCo(sync_every="auto")`; run by `measured_steps_test.py`."""

import keras
import tensorflow as tf

from terngrad_tf import DiLoCo, TernGradStrategy
from tests.distribute import processes
from tests.distribute.local_sgd.local_steps_cases import Exchanges, data, network


class Losses(keras.callbacks.Callback):
    """Records the losses and the weights after each step of `fit`."""

    def __init__(self):
        super().__init__()
        self.losses, self.weights = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])
        self.weights.append(self.model.get_weights()[0])


def fit(strategy, sync_every, exchanges):
    """The optimizer, and the callback's records of 60 steps."""
    with strategy.scope():
        model = network()
        optimizer = DiLoCo(keras.optimizers.SGD(0.05), sync_every, outer=keras.optimizers.SGD(1.0))
        model.compile(optimizer, "mse")
    seen = Losses()
    dataset = tf.data.Dataset.from_tensor_slices(data(48)).repeat().batch(12)
    model.fit(dataset, steps_per_epoch=60, verbose=0, callbacks=[exchanges, seen])
    return optimizer, seen


def train(config):
    """The callbacks' records, and the number of steps between exchanges."""
    strategy, exchanges = TernGradStrategy(grad_bits=config["grad_bits"]), Exchanges()
    optimizer, seen = fit(strategy, "auto", exchanges)
    _, by_hand = fit(strategy, 1000, Exchanges(exchanges.steps))
    return {
        "losses": seen.losses,
        "weights": seen.weights,
        "weights_by_hand": by_hand.weights,
        "period": optimizer.steps_of_round,
        "traffic": strategy.traffic.received_bytes,
    }


if __name__ == "__main__":
    processes.main({"auto": train, "ternary": train})

"""Data and training runs, equal on one process and on two."""

import math

import keras
import numpy as np
import tensorflow as tf

NUM_EXAMPLES = 20
BATCH_SIZE = 4
# Kinds of data for `train`.
KINDS = ("arrays", "py_dataset", "noisy_py_dataset", "data_set")
# Example i is the i-th unit vector: each weight of a linear model belongs to one example.
IDS = np.arange(NUM_EXAMPLES)
X, Y = np.eye(NUM_EXAMPLES, dtype=np.float32), IDS.astype(np.float32)[:, np.newaxis]


class Batches(keras.utils.PyDataset):
    """Batches of consecutive examples; with `order`, NumPy shuffles them in every epoch."""

    def __init__(self, order=False, **options):
        super().__init__(**options)
        self.order, self.ids = order, IDS.copy()
        self.on_epoch_end()

    def __len__(self):
        return math.ceil(NUM_EXAMPLES / BATCH_SIZE)

    def __getitem__(self, index):
        ids = self.ids[BATCH_SIZE * index : BATCH_SIZE * (index + 1)]
        return X[ids], Y[ids]

    def on_epoch_end(self):
        if self.order:
            np.random.shuffle(self.ids)


class NoisyBatches(Batches):
    """Batches with noise that is drawn when they are read."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + self.rng.normal(0, 0.1, x.shape).astype(np.float32), y


def train(strategy, kind):
    """Trains with a seed; returns weights, history and predictions."""
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input([NUM_EXAMPLES]), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)]
        )
        model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    if kind == "arrays":
        data, options = (X, Y), {"batch_size": BATCH_SIZE, "validation_split": 0.2}
    elif kind == "py_dataset":
        data, options = (Batches(),), {"validation_data": (X, Y)}
    elif kind == "noisy_py_dataset":
        data, options = (NoisyBatches(),), {"validation_data": NoisyBatches()}
    else:
        shuffled = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(NUM_EXAMPLES)
        data, options = (shuffled.batch(6),), {"validation_data": (X, Y)}
    model.fit(*data, epochs=1, verbose=0, **options)
    history = model.fit(*data, epochs=2, verbose=0, **options).history
    results = {name: np.array(values) for name, values in history.items()}
    results["predictions"] = model.predict(X, batch_size=6, verbose=0)
    results["evaluated"] = np.array(model.evaluate(X, Y, batch_size=6, verbose=0))
    for index, weight in enumerate(model.get_weights()):
        results[f"weight {index}"] = weight
    return results


def use_single_batches(strategy, ids):
    """Trains on one batch and evaluates another; returns metrics, and predictions for `ids`."""
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input([NUM_EXAMPLES]), keras.layers.Dense(1, "sigmoid")])
        metrics = ["mae", keras.metrics.AUC(num_thresholds=20)]
        model.compile("sgd", "binary_crossentropy", metrics=metrics)
    x, y = X[ids], Y[ids] % 2
    results = {"trained": model.train_on_batch(x, y), "evaluated": model.test_on_batch(x, y)}
    results["of all"] = model.predict(X, verbose=0)
    results["predictions"] = model.predict_on_batch(x)
    if ids[0] == 0:
        # Processes need not predict together.
        model.predict_on_batch(x[:3])
    return results

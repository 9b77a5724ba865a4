"""Trains and tests the runs of the fidelity study in this process."""

import itertools
import math
import time

import keras
import tensorflow as tf

import terngrad_tf
from benchmarks.fidelity import networks
from benchmarks.fidelity.settings import GRADIENTS, TEXT_NETS
from benchmarks.lib import evaluation, fashion, source_text
from benchmarks.lib.quantizations import quantization
from benchmarks.lib.weights import MovingAverage, assign, values

HELD_OUT = 5000
_TEST_SNIPPETS = 10000
_OPTIMIZERS = {
    "SGD, momentum 0.9": lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
    "Adam": keras.optimizers.Adam,
    "RMSprop": keras.optimizers.RMSprop,
    "Lion": keras.optimizers.Lion,
    "AdamW": keras.optimizers.AdamW,
    "Muon": keras.optimizers.Muon,
    "AbsAdam": terngrad_tf.AbsAdam,
}


class CosineDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that falls along half a cosine to 0, from a start that can be set again."""

    def __init__(self, steps):
        self._steps = steps
        self.start = tf.Variable(0.0)

    def __call__(self, step):
        """Returns the rate at a step."""
        return self.start * (1 + tf.cos(math.pi * tf.cast(step, tf.float32) / self._steps)) / 2


def load(net, raw_dir, images):
    """Returns {"train", "held_out", "test"}: (images, labels), as `fashion` and `source_text` load.

    Args:
        images: number of training images; the next 5,000 are held out to choose rates.
    """
    if net in TEXT_NETS:
        data = source_text.load(images + HELD_OUT, _TEST_SNIPPETS)
    else:
        data = fashion.load(raw_dir, images + HELD_OUT)
    examples, labels = data["train"]
    return {
        "train": (examples[:images], labels[:images]),
        "held_out": (examples[images:], labels[images:]),
        "test": data["test"],
    }


class _Received(keras.callbacks.Callback):
    """Records the bytes of every tenth step."""

    def __init__(self, strategy):
        super().__init__()
        self._strategy = strategy
        self._traffic = []

    def on_train_batch_end(self, batch, logs=None):
        """Called by `fit`."""
        if batch % 10 == 0:
            self._traffic.append(self._strategy.traffic)

    @property
    def compression(self):
        """Returns bytes of float32 gradients divided by received bytes."""
        received = sum(traffic.received_bytes for traffic in self._traffic)
        return sum(traffic.float32_bytes for traffic in self._traffic) / received if received else 1


class Trainer:
    """Training function of all runs of one shape, on the data of `load`."""

    def __init__(self, shape, data):
        self._shape, self._data = shape, data
        steps = shape.images // shape.batch_size
        self._rate = CosineDecay(steps * shape.epochs)
        keras.config.set_dtype_policy(shape.precision)
        options = dict(GRADIENTS[shape.gradients])
        # Streams have the size of sparse codes; the codes are those of any lossless wire.
        wire = options.pop("wire", "sparse" if "bits_per_element" in options else "auto")
        self._strategy = terngrad_tf.TernGradStrategy(
            shape.num_nodes, wire=wire, quantization=quantization(**options)
        )
        with self._strategy.scope():
            self._model = networks.build(shape.net, 0)
            self._model.compile(
                _OPTIMIZERS[shape.optimizer](self._rate),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                jit_compile=False,
            )
            self._model.optimizer.build(self._model.trainable_variables)
        self._optimizer_at_start = values(self._model.optimizer.variables)
        self._average = MovingAverage(self._model.trainable_variables)
        self._alone = networks.build(shape.net, 0)
        self._logits = tf.function(lambda images: self._alone(images, training=False))

    def run(self, rate, seed):
        """Trains from the start and tests.

        Returns:
            Dict with "training_loss" of the last epoch; "accuracy" and "loss" of the final weights
            on test images; "average_accuracy" and "average_loss" of their moving average;
            "held_out_loss" of the final weights; "compression", the factor of saved bytes if each
            worker is a separate host; and "seconds". Losses that are not finite are None.
        """
        start = time.perf_counter()
        self._rate.start.assign(rate)
        weights = networks.build(self._shape.net, seed).get_weights()
        self._model.set_weights(weights)
        assign(self._model.optimizer.variables, self._optimizer_at_start)
        self._average.begin()
        images, received = self._shape.images, _Received(self._strategy)
        batches = (
            tf.data.Dataset.from_tensor_slices(self._data["train"])
            .shuffle(images, seed=seed)
            .batch(self._shape.batch_size, drop_remainder=True)
        )
        history = self._model.fit(
            *(batches, None),
            epochs=self._shape.epochs,
            verbose=0,
            shuffle=False,
            callbacks=[self._average, received],
        )
        self._alone.set_weights(self._model.get_weights())
        row = {"training_loss": history.history["loss"][-1]}
        row["loss"], row["accuracy"] = self._test("test")
        row["held_out_loss"], _ = self._test("held_out")
        self._average.assign_to_weights()
        self._alone.set_weights(self._model.get_weights())
        row["average_loss"], row["average_accuracy"] = self._test("test")
        row["compression"] = received.compression
        row["seconds"] = time.perf_counter() - start
        return {name: value if math.isfinite(value) else None for name, value in row.items()}

    def _test(self, split):
        return evaluation.loss_and_accuracy(self._logits, *self._data[split])


def perform(runs, rows, data):
    """Trains the missing runs.

    Args:
        runs: runs of one shape follow each other.
        rows: `Rows` that receives the results.
        data: function of a network's name that returns the result of `load`.
    """
    missing = [run for run in runs if run not in rows]
    for shape, group in itertools.groupby(missing, key=lambda run: run.shape):
        trainer = Trainer(shape, data(shape.net))
        for run in group:
            row = trainer.run(run.rate, run.seed)
            rows.add(run, row)
            print(
                f"{run.net}, {run.optimizer} {run.rate:g}, {run.gradients}, {run.num_nodes} workers"
                f" with {run.batch_size} images, {run.precision}, seed {run.seed}:"
                f" {100 * row['accuracy']:.2f} % ({row['seconds']:.0f} s)",
                flush=True,
            )

"""Compares the test accuracy of ternary and float gradients for several numbers of replicas.

    python -m benchmarks.accuracy --json=accuracy.json

Trains LeNet and ResNet-20 on scikit-learn's 1,797 handwritten digits (1,437 for training, 360 for
testing: one test image is 0.28 %). 2, 4, 8 and 16 replicas divide batches of 64 images. Gradients
are float, or ternary: with correlated or independent random bits across replicas, clipped at 2.5
standard deviations or unclipped. Each combination runs once per seed. The seed fixes the initial
weights and the order of the images; the accuracy is that of the final weights.

The digits have 8x8 pixels. LeNet reads them enlarged to 28x28, ResNet-20 in their own size.

The JSON file keeps finished runs. Repeat the command to resume; flags that select some runs add to
the file, and the table shows the whole file.
"""

import collections
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import time

from absl import app, flags

from benchmarks.lib import digits, figures, markdown, means, program


@dataclasses.dataclass(frozen=True)
class Settings:
    """Training settings of a network.

    Args:
        learning_rate: rate of the first step; falls along half a cosine to 0.
        weight_decay: L2 factor of the kernels.
        batch_size: images per step, over all replicas.
    """

    image_size: int
    learning_rate: float
    weight_decay: float
    momentum: float = 0.9
    batch_size: int = 64


NETS = {
    "lenet": Settings(image_size=28, learning_rate=0.02, weight_decay=5e-4),
    "resnet_20": Settings(image_size=8, learning_rate=0.1, weight_decay=1e-4),
}
# Options of `Quantization` by kind of gradients.
GRADIENTS = {
    "float": {"grad_bits": 32},
    "rotated": {},
    **{
        f"{rounding}, clip {clip:g}": {"rotate": False, "rounding": rounding, "clip_factor": clip}
        for rounding in ("correlated", "independent")
        for clip in (2.5, 0.0)
    },
}

_NETS = flags.DEFINE_list("nets", list(NETS), f"Networks, from {', '.join(NETS)}.")
_REPLICAS = flags.DEFINE_list("replicas", ["2", "4", "8", "16"], "Numbers of replicas.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds; each is one run.")
_EPOCHS = flags.DEFINE_integer("epochs", 12, "Passes through the training images.", lower_bound=1)
_JSON = flags.DEFINE_string("json", "accuracy.json", "File with the finished runs.")
_RUNS = flags.DEFINE_string("runs", None, "Used for the processes of the runs.")


class Trainer:
    """One model under one strategy, shared by all seeds: compiling takes longer than some runs."""

    def __init__(self, net, num_replicas, gradients):
        import keras

        import terngrad_tf

        self._net, self._settings = net, NETS[net]
        self._data = digits.load(self._settings.image_size)
        examples = len(self._data["train"][0])
        self._steps_per_epoch = examples // self._settings.batch_size
        strategy = terngrad_tf.TernGradStrategy(
            num_replicas, quantization=terngrad_tf.Quantization(**GRADIENTS[gradients])
        )
        rate = keras.optimizers.schedules.CosineDecay(
            self._settings.learning_rate, _EPOCHS.value * self._steps_per_epoch
        )
        with strategy.scope():
            self._model = self._build(seed=0)
            self._model.compile(
                keras.optimizers.SGD(rate, momentum=self._settings.momentum),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                jit_compile=False,
                steps_per_execution=self._steps_per_epoch,
            )
            self._model.optimizer.build(self._model.trainable_variables)

    def run(self, seed):
        """Trains and tests; returns test accuracy and the last epoch's loss or None."""
        import numpy as np
        import tensorflow as tf

        alone = self._build(seed)
        self._model.set_weights(alone.get_weights())
        for variable in self._model.optimizer.variables:
            variable.assign(tf.zeros(variable.shape, variable.dtype))
        batches = (
            tf.data.Dataset.from_tensor_slices(self._data["train"])
            .shuffle(len(self._data["train"][0]), seed=seed)
            .batch(self._settings.batch_size, drop_remainder=True)
        )
        history = self._model.fit(batches, epochs=_EPOCHS.value, shuffle=False, verbose=0)
        alone.set_weights(self._model.get_weights())
        images, labels = self._data["test"]
        predicted = np.argmax(alone(images, training=False), axis=-1)
        loss = history.history["loss"][-1]
        return float(np.mean(predicted == labels)), loss if np.isfinite(loss) else None

    def _build(self, seed):
        from terngrad_tf import models

        return models.build(
            self._net,
            10,
            self._settings.image_size,
            channels=1,
            weight_decay=self._settings.weight_decay,
            seed=1000 * seed,  # layers count up from this seed
        )


def run_all(runs):
    """Trains the runs of each network and number of replicas; prints a JSON line each.

    TensorFlow fixes the replicas' devices per process: one number per process.
    """
    for (net, replicas, gradients), group in itertools.groupby(runs, key=lambda run: run[:3]):
        start = time.perf_counter()
        trainer = Trainer(net, replicas, gradients)
        for *_, seed in group:
            accuracy, loss = trainer.run(seed)
            result = {"net": net, "replicas": replicas, "gradients": gradients, "seed": seed}
            result |= {"accuracy": accuracy, "loss": loss}
            seconds = time.perf_counter() - start
            print(json.dumps(result | {"seconds": round(seconds, 1)}), flush=True)
            start = time.perf_counter()


def results_of(runs):
    """Yields the results of runs, which a child process trains."""
    command = [sys.executable, "-m", "benchmarks.accuracy", "--verbosity=-1"]
    command += [f"--epochs={_EPOCHS.value}", f"--runs={json.dumps(runs)}"]
    process = subprocess.Popen(
        command,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stdout:
            yield json.loads(line)
        if process.wait():
            raise SystemExit(f"A process failed with status {process.returncode}.")
    finally:
        process.kill()
        process.wait()


def settings():
    """Returns the settings that all runs of a file share."""
    epochs = {"epochs": _EPOCHS.value}
    return {
        "nets": {net: dataclasses.asdict(of_net) | epochs for net, of_net in NETS.items()},
        "gradients": GRADIENTS,
    }


def table(runs):
    """Returns mean, minimum and maximum accuracy over seeds in percent."""
    cells = collections.defaultdict(list)
    for run in runs:
        cells[run["net"], run["replicas"], run["gradients"]].append(100 * run["accuracy"])
    counts = sorted({run["replicas"] for run in runs})
    lines = []
    for net, gradients in itertools.product(NETS, GRADIENTS):
        row = [cells.get((net, count, gradients), []) for count in counts]
        if any(row):
            texts = (means.with_range(cell, 2) if cell else "" for cell in row)
            lines.append([net, gradients, *texts])
    titles = " | ".join(f"{count} replicas" for count in counts)
    return markdown.table(f"network | gradients | {titles}", lines)


def main():
    """Trains the missing runs and prints the table."""
    if _RUNS.value:
        return run_all(json.loads(_RUNS.value))
    if unknown := set(_NETS.value) - set(NETS):
        raise app.UsageError(f"--nets must be from {', '.join(NETS)}. Received: {sorted(unknown)}")
    runs = figures.Finished(_JSON.value, settings())
    replicas, seeds = map(int, _REPLICAS.value), map(int, _SEEDS.value)
    chosen = itertools.product(_NETS.value, replicas, GRADIENTS, seeds)
    missing = runs.missing(chosen, "net", "replicas", "gradients", "seed")
    for _, group in itertools.groupby(missing, key=lambda run: run[:2]):
        for result in results_of(list(group)):
            runs.add(result)
            print(
                f"{result['net']}, {result['replicas']} replicas, {result['gradients']}, "
                f"seed {result['seed']}: {100 * result['accuracy']:.2f} % "
                f"({result['seconds']:.0f} s)",
                flush=True,
            )
    print(f"\nTest accuracy in %, mean (minimum to maximum) over seeds:\n\n{table(runs)}")


if __name__ == "__main__":
    program.run(main)

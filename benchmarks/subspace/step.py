"""Compares the time of a P-BFGS step with an SGD step, and the bytes that workers exchange.

    python -m benchmarks.subspace.step --nets=lenet,cifar10_alexnet --batch_sizes=128,1024

Both optimizers train the same network on the same batch of random images, step after step in turn,
with one replica each. A step's time counts in the row of the number of trials of its line search;
the CPU time of all threads, also in the row, depends less on other programs. A P-BFGS step is an
SGD step, one more forward pass per trial, and two passes over the components, whose share grows
with the number of weights per example. Bytes are those that a worker sends per step: the k
coordinates, the loss, and one loss per trial, compared with one float32 per weight.
"""

import os
import time

import keras
import numpy as np
from absl import flags

from benchmarks.lib import figures, markdown, program
from terngrad_tf import models
from terngrad_tf.subspace import Subspace, SubspaceBFGS, SubspaceModel

_NETS = flags.DEFINE_list("nets", ["lenet"], "Networks, of terngrad_tf.models.")
_BATCH_SIZES = flags.DEFINE_list("batch_sizes", ["128", "1024"], "Examples per step.")
_COMPONENTS = flags.DEFINE_integer("components", 32, "Dimension of the subspace.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 30, "Timed steps of each optimizer.", lower_bound=1)
_DTYPE = flags.DEFINE_enum("dtype", "float32", ["float32", "float16", "bfloat16"], "Basis dtype.")
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

_CLASSES = 10


def compiled(net, optimizer_of):
    """Returns the network; `optimizer_of` makes its optimizer from the number of weights."""
    keras.utils.set_random_seed(0)
    network = models.build(net, _CLASSES)
    model = SubspaceModel(network.inputs, network.outputs)
    num_weights = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer_of(num_weights), loss, jit_compile=False)
    return model, num_weights


def random_subspace(num_weights):
    """Returns random directions: the time does not depend on the choice."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((num_weights, _COMPONENTS.value), np.float32)
    return Subspace(np.ascontiguousarray(np.linalg.qr(columns)[0].T))


def measure(net, batch_size):
    """Returns the rows of a network and batch size, one per number of trials."""
    image_size, channels = models.input_shape(net)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((batch_size, image_size, image_size, channels), np.float32)
    y = rng.integers(0, _CLASSES, batch_size)
    sgd, num_weights = compiled(net, lambda n: keras.optimizers.SGD(1e-3))
    bfgs, _ = compiled(net, lambda n: SubspaceBFGS(random_subspace(n), dtype=_DTYPE.value))
    seconds, of_trials = [], {}
    for step in range(-2, _STEPS.value):
        before = int(bfgs.optimizer.num_trials.numpy()) if bfgs.optimizer.built else 0
        elapsed = []
        for model in (sgd, bfgs):
            start = np.array([time.perf_counter(), time.process_time()])
            model.train_on_batch(x, y)
            elapsed.append([time.perf_counter(), time.process_time()] - start)
        if step >= 0:
            trials = int(bfgs.optimizer.num_trials.numpy()) - before
            seconds.append(elapsed[0])
            of_trials.setdefault(trials, []).append(elapsed[1])
    base = 1e3 * np.median(seconds, axis=0)
    medians = {trials: 1e3 * np.median(times, axis=0) for trials, times in of_trials.items()}
    return [
        {
            "net": net,
            "weights": num_weights,
            "batch_size": batch_size,
            "trials": trials,
            "steps": len(of_trials[trials]),
            "sgd_milliseconds": base[0],
            "bfgs_milliseconds": own[0],
            "ratio": own[0] / base[0],
            "sgd_cpu_milliseconds": base[1],
            "bfgs_cpu_milliseconds": own[1],
            "cpu_ratio": own[1] / base[1],
            "sent_bytes": 4 * (_COMPONENTS.value + 1 + trials),
            "float32_bytes": 4 * num_weights,
        }
        for trials, own in sorted(medians.items())
    ]


def table(rows):
    """Returns the rows as a Markdown table."""
    # Title of each column, and format of its numbers.
    columns = {
        "net": ("network", ""),
        "weights": ("weights", ","),
        "batch_size": ("batch", ""),
        "trials": ("trials", ""),
        "steps": ("steps", ""),
        "sgd_milliseconds": ("SGD ms", ".0f"),
        "bfgs_milliseconds": ("P-BFGS ms", ".0f"),
        "ratio": ("ratio", ".2f"),
        "sgd_cpu_milliseconds": ("SGD CPU ms", ".0f"),
        "bfgs_cpu_milliseconds": ("P-BFGS CPU ms", ".0f"),
        "cpu_ratio": ("CPU ratio", ".2f"),
        "sent_bytes": ("sent bytes", ""),
        "float32_bytes": ("float32 bytes", ","),
    }
    lines = [[format(row[name], how) for name, (_, how) in columns.items()] for row in rows]
    return markdown.table(" | ".join(title for title, _ in columns.values()), lines)


def main():
    """Measures every network and batch size and prints the table."""
    rows = []
    for net in _NETS.value:
        for batch_size in _BATCH_SIZES.value:
            rows += measure(net, int(batch_size))
    print(f"{_COMPONENTS.value} components, medians, {os.cpu_count()} cores")
    print(table(rows))
    if _JSON.value:
        figures.write_json(_JSON.value, {"rows": rows})


if __name__ == "__main__":
    program.run(main)

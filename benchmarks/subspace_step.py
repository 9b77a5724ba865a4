"""Time of a P-BFGS step against an SGD step of the same network, and what workers exchange.

    python -m benchmarks.subspace_step --nets=lenet,cifar10_alexnet --batch_sizes=128,1024

Both train the same network on the same batch of random images, step after step in turn, one replica
each. A step's time counts in the row of the number of trials that its line search needed. Bytes are
what a worker sends a step: the k coordinates, the loss, and one loss a trial, against one float32 a
weight.
"""

import os
import statistics
import time

import keras
import numpy as np
from absl import app, flags

from benchmarks import figures
from terngrad_tf import models
from terngrad_tf.subspace import Subspace, SubspaceBFGS, SubspaceModel

_NETS = flags.DEFINE_list("nets", ["lenet"], "Networks, of terngrad_tf.models.")
_BATCH_SIZES = flags.DEFINE_list("batch_sizes", ["128", "1024"], "Examples a step.")
_COMPONENTS = flags.DEFINE_integer("components", 32, "Dimension of the subspace.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 30, "Timed steps of each optimizer.", lower_bound=1)
_DTYPE = flags.DEFINE_enum("dtype", "float32", ["float32", "float16", "bfloat16"], "Basis dtype.")
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

_CLASSES = 10


def compiled(net, optimizer_of):
    """The network, with the optimizer that `optimizer_of` makes for its number of weights."""
    keras.utils.set_random_seed(0)
    network = models.build(net, _CLASSES)
    model = SubspaceModel(network.inputs, network.outputs)
    num_weights = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer_of(num_weights), loss, jit_compile=False)
    return model, num_weights


def random_subspace(num_weights):
    """Random directions: the time does not depend on which."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((num_weights, _COMPONENTS.value), np.float32)
    return Subspace(np.ascontiguousarray(np.linalg.qr(columns)[0].T))


def measure(net, batch_size):
    """Rows, one a number of trials, for a network and batch size."""
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
            start = time.perf_counter()
            model.train_on_batch(x, y)
            elapsed.append(time.perf_counter() - start)
        if step >= 0:
            trials = int(bfgs.optimizer.num_trials.numpy()) - before
            seconds.append(elapsed[0])
            of_trials.setdefault(trials, []).append(elapsed[1])
    base = statistics.median(seconds)
    return [
        {
            "net": net,
            "weights": num_weights,
            "batch_size": batch_size,
            "trials": trials,
            "steps": len(times),
            "sgd_milliseconds": 1e3 * base,
            "bfgs_milliseconds": 1e3 * statistics.median(times),
            "ratio": statistics.median(times) / base,
            "sent_bytes": 4 * (_COMPONENTS.value + 1 + trials),
            "float32_bytes": 4 * num_weights,
        }
        for trials, times in sorted(of_trials.items())
    ]


def table(rows):
    """The rows as a Markdown table."""
    lines = [
        "| network | weights | batch | trials | steps | SGD ms | P-BFGS ms | ratio | sent bytes"
        " | float32 bytes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['net']} | {r['weights']:,} | {r['batch_size']} | {r['trials']} | {r['steps']} |"
        f" {r['sgd_milliseconds']:.0f} | {r['bfgs_milliseconds']:.0f} | {r['ratio']:.2f} |"
        f" {r['sent_bytes']} | {r['float32_bytes']:,} |"
        for r in rows
    ]
    return "\n".join(lines)


def main(argv):
    """Measures every network and batch size and prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    rows = []
    for net in _NETS.value:
        for batch_size in _BATCH_SIZES.value:
            rows += measure(net, int(batch_size))
    print(f"{_COMPONENTS.value} components, medians, {os.cpu_count()} cores")
    print(table(rows))
    if _JSON.value:
        figures.write_json(_JSON.value, {"rows": rows})


if __name__ == "__main__":
    app.run(main)

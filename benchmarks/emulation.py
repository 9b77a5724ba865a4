"""Measures the cost of replicas: step time, start-up time and memory by number of replicas.

    python -m benchmarks.emulation --replicas=1,4,16,64 --batch_sizes=512,64 --json=emulation.json

Trains a network of terngrad_tf.models on random images of its usual size, with ternary gradients,
stock `model.fit` and the same total batch for every number of replicas; 0 replicas mean Keras
without a strategy. With --processes, several processes of the same number of replicas share the
batch and exchange through the host's memory, on loopback. Each cell runs in its own process, and
rounds cover all cells in turn, so that other work of the machine meets all of them alike. A step is
the median over the steps after the first two, including the device's work. Start-up lasts from the
creation of the strategy to the end of the first step, without imports. Memory is the largest
resident set of the process (of several: the first one). Replicas run on the machine's GPUs if there
are any; several processes share these.
"""

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time

from absl import app, flags

from benchmarks.lib import cluster_hosts, figures, markdown, means, measuring, program
from terngrad_tf.quantization_options import GRAD_BITS

_NET = flags.DEFINE_string("net", "lenet", "Network, of terngrad_tf.models.")
_REPLICAS = flags.DEFINE_list(
    "replicas", ["1", "4", "16", "64"], "Numbers of replicas; 0 for Keras without a strategy."
)
_BATCH_SIZES = flags.DEFINE_list("batch_sizes", ["512", "64"], "Images per step, all replicas.")
_STEPS = flags.DEFINE_integer("steps", 20, "Timed steps of a process.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Processes of each cell.", lower_bound=1)
_GRAD_BITS = flags.DEFINE_enum(
    "grad_bits",
    "1",
    [*map(str, GRAD_BITS)],
    "1 for ternary, 3 to 8 for codes of this many bits, 32 for float.",
)
_ROTATE = flags.DEFINE_bool("rotate", True, "Rotate gradients before they are rounded.")
_PROCESSES = flags.DEFINE_integer("processes", 1, "Processes of a cell.", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")
_CELL = flags.DEFINE_string("cell", None, "Internal: BATCH_SIZE,REPLICAS measured by this process.")

_WARM_UP_STEPS = 2


@contextlib.contextmanager
def _peers():
    """Makes this process the first of `--processes`, and starts the others."""
    if _PROCESSES.value == 1 or "TF_CONFIG" in os.environ:
        yield
        return
    # Several processes may share a GPU.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    ports = cluster_hosts.free_ports(_PROCESSES.value)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    configs = [
        json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        for index in range(_PROCESSES.value)
    ]
    os.environ["TF_CONFIG"] = configs[0]
    command = [sys.executable, "-m", "benchmarks.emulation", *sys.argv[1:]]
    with contextlib.ExitStack() as stack:
        for config in configs[1:]:
            environment = dict(os.environ, TF_CONFIG=config)
            peer = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            stack.enter_context(peer)
            stack.callback(peer.kill)
        yield


def _measure(batch_size, num_replicas):
    """Measures one cell in this process; prints a JSON line."""
    import keras
    import numpy as np
    import tensorflow as tf

    import terngrad_tf

    class Clock(keras.callbacks.Callback):
        """Records when each step ends."""

        def __init__(self):
            super().__init__()
            self.times = []

        def on_train_batch_end(self, batch, logs=None):
            """Called by `fit`."""
            if _PROCESSES.value == 1:
                tf.test.experimental.sync_devices()
            else:  # sync_devices does not support clusters
                self.model.trainable_variables[0].numpy()
            self.times.append(time.perf_counter())

    start = time.perf_counter()
    keras.utils.set_random_seed(0)
    scope = contextlib.nullcontext()
    if num_replicas:
        scope = terngrad_tf.TernGradStrategy(
            num_replicas,
            quantization=terngrad_tf.Quantization(
                grad_bits=int(_GRAD_BITS.value), rotate=_ROTATE.value
            ),
            cluster_options=terngrad_tf.ClusterOptions(communication="ring"),
        ).scope()
    size, channels = terngrad_tf.models.input_shape(_NET.value)
    with scope:
        model = terngrad_tf.models.build(_NET.value, num_classes=10)
        model.compile(
            keras.optimizers.SGD(0.01, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False,
        )
    rng = np.random.default_rng(0)
    batch = (
        rng.random((batch_size, size, size, channels), np.float32),
        rng.integers(0, 10, batch_size),
    )
    clock = Clock()
    model.fit(
        tf.data.Dataset.from_tensors(batch).repeat(),
        steps_per_epoch=_WARM_UP_STEPS + _STEPS.value,
        shuffle=False,
        verbose=0,
        callbacks=[clock],
    )
    steps = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
    measured = {
        "milliseconds": 1e3 * statistics.median(steps[_WARM_UP_STEPS - 1 :]),
        "start_seconds": clock.times[0] - start,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(measured))


def _table(measured):
    """Returns medians as Markdown; ratios are to each batch's first number of replicas."""
    lines, first = [], {}
    for (batch_size, num_replicas), rounds in measured.items():
        median = means.medians(rounds)
        base = first.setdefault(batch_size, rounds)
        ratio = statistics.median(
            r["milliseconds"] / b["milliseconds"] for r, b in zip(rounds, base, strict=True)
        )
        line = [batch_size, num_replicas, f"{median['milliseconds']:.1f}", f"{ratio:.2f}"]
        lines.append([*line, f"{median['start_seconds']:.1f}", f"{median['memory_mib']:.0f}"])
    titles = "batch | replicas | step, ms | / the first | start-up, s | memory, MiB"
    return markdown.table(titles, lines)


def main():
    """Runs all cells and prints their table."""
    if _CELL.value:
        with _peers():
            _measure(*map(int, _CELL.value.split(",")))
        return
    from terngrad_tf import models

    if _PROCESSES.value > 1 and "0" in _REPLICAS.value:
        raise app.UsageError("--replicas must not hold 0 with several --processes.")
    try:
        models.input_shape(_NET.value)
    except ValueError as error:
        raise app.UsageError(str(error)) from None
    measured = measuring.in_processes(
        "emulation",
        [(int(b), int(n)) for b in _BATCH_SIZES.value for n in _REPLICAS.value],
        _ROUNDS.value,
        f"--steps={_STEPS.value}",
        f"--grad_bits={_GRAD_BITS.value}",
        f"--rotate={_ROTATE.value}",
        f"--net={_NET.value}",
        f"--processes={_PROCESSES.value}",
    )
    print(
        f"{_NET.value}, {_GRAD_BITS.value} bit gradients, rotate={_ROTATE.value},"
        f" {_PROCESSES.value} processes each,"
        f" median of {_ROUNDS.value} rounds of {_STEPS.value} steps, {os.cpu_count()} cores"
    )
    print(_table(measured))
    if _JSON.value:
        found = [
            {"batch_size": b, "num_replicas": n, "rounds": rounds}
            for (b, n), rounds in measured.items()
        ]
        figures.write_json(_JSON.value, {"cells": found})


if __name__ == "__main__":
    program.run(main)

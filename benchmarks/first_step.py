"""Measures time and memory of the first exchange of a network's gradients.

    python -m benchmarks.first_step --nets=lenet,resnet_50 --json=first_step.json

The network computes nothing: its weights serve as gradients, and `--replicas` replicas in one
process exchange them as floats; as ternary codes that are summed in place ("ternary", as in every
exchange within a process); and as words in the format that travels ("words", with
`wire="bidirectional"`). Each cell runs in its own process, in rounds. Processor time counts from
the beginning of the first step to its end: Python builds the functions and XLA compiles them.
Memory is the increase from before the first step to after `--steps` steps, without free memory; and
the largest increase in between. Needs Linux and glibc.
"""

import ctypes
import json
import os
import pathlib
import re
import statistics
import time

from absl import flags

from benchmarks.lib import figures, markdown, means, measuring, program

MODES = ("float", "ternary", "words")
_NETS = flags.DEFINE_list("nets", ["lenet", "resnet_50"], "Networks, from terngrad_tf.models.")
_MODES = flags.DEFINE_multi_enum("modes", list(MODES), MODES, "Format of gradients; repeatable.")
_REPLICAS = flags.DEFINE_integer("replicas", 2, "Replicas.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 4, "Steps of a process.", lower_bound=2)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Processes of each cell.", lower_bound=1)
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")
_CELL = flags.DEFINE_string("cell", None, "Internal: NET,MODE measured by this process.")

_OPTIONS = {
    "float": {"grad_bits": 32},
    "ternary": {},
    "words": {"wire": "bidirectional"},
}


def _held_mb(name):
    """Returns memory of this process in MB: "VmRSS", or "VmHWM", the maximum since `_forget`."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024


def _forget():
    """Gives free memory back and restarts the search for the maximum."""
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def _measure(net, mode):
    """Measures one cell in this process; prints a JSON line."""
    import keras
    import tensorflow as tf

    import terngrad_tf

    strategy = terngrad_tf.TernGradStrategy(_REPLICAS.value, **_OPTIONS[mode])
    with strategy.scope():
        model = terngrad_tf.models.build(net, num_classes=10)
        optimizer = keras.optimizers.SGD(1e-3)
        optimizer.build(model.trainable_variables)

    @tf.function
    def step():
        def replica_step():
            gradients = [tf.identity(v) for v in model.trainable_variables]
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        strategy.run(replica_step)

    # TensorFlow and XLA keep memory from their first use on.
    tf.function(lambda x: 2 * x, jit_compile=True)(tf.ones([10]))
    _forget()
    before, clock, begin = _held_mb("VmRSS"), time.process_time(), time.perf_counter()
    step()
    measured = {
        "seconds": time.perf_counter() - begin,
        "processor_seconds": time.process_time() - clock,
    }
    times = []
    for _ in range(_STEPS.value - 1):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    measured["later_ms"] = 1e3 * statistics.median(times)
    measured["most_mb"] = _held_mb("VmHWM") - before
    _forget()
    measured["mb"] = _held_mb("VmRSS") - before
    print(json.dumps(measured))


def _table(measured):
    """Returns medians as a Markdown table."""
    lines = []
    for (net, mode), rounds in measured.items():
        median = means.medians(rounds)
        line = [net, mode, *(f"{median[name]:.1f}" for name in ("seconds", "processor_seconds"))]
        lines.append([*line, *(f"{median[name]:.0f}" for name in ("later_ms", "mb", "most_mb"))])
    titles = "network | gradients | first step, s | of processor time | a later step, ms"
    return markdown.table(f"{titles} | memory, MB | at most", lines)


def main():
    """Runs all cells and prints their table."""
    if _CELL.value:
        _measure(*_CELL.value.split(","))
        return
    measured = measuring.in_processes(
        "first_step",
        [(net, mode) for net in _NETS.value for mode in _MODES.value],
        _ROUNDS.value,
        f"--replicas={_REPLICAS.value}",
        f"--steps={_STEPS.value}",
    )
    print(
        f"{_REPLICAS.value} replicas in one process, medians of {_ROUNDS.value} processes,"
        f" {os.cpu_count()} cores"
    )
    print(_table(measured))
    if _JSON.value:
        found = [
            {"net": net, "mode": mode, "rounds": rounds} for (net, mode), rounds in measured.items()
        ]
        figures.write_json(_JSON.value, {"replicas": _REPLICAS.value, "cells": found})


if __name__ == "__main__":
    program.run(main)

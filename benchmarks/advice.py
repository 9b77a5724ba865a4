"""Checks the mode that `terngrad_tf.advise` names and the wire that `wire="auto"` takes.

Creates hosts on this machine, joined by links of a chosen rate (`lib/netns.sh`: Linux, root,
iproute2). One process per host trains the small network of `benchmarks/cluster/models.py` with
float gradients and with every wire; the modes take turns, round by round. Then the benchmark asks
each mode's run for advice. Advice is good if the mode that it names takes at most 1.1 times the
step time of the fastest mode; "auto" is good if its wire does so among the lossless wires.

    python -m benchmarks.advice --json=advice.json
"""

import json
import statistics
import time

from absl import flags

from benchmarks.cluster import tensorflow_worker
from benchmarks.lib import cluster_hosts, figures, markdown, measuring, program

_HOSTS = flags.DEFINE_list("hosts", ["2"], "Numbers of hosts to measure.")
_RATES = flags.DEFINE_list(
    "rates", ["10mbit", "100mbit", "1gbit", "none"], "Rates of the links; none: unlimited."
)
_CLIP = flags.DEFINE_float("clip_factor", 2.5, "The strategy's clip_factor.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Maximum number of measured rounds.", lower_bound=1)
_SECONDS = flags.DEFINE_integer("seconds", 30, "Time for the measured rounds of a mode.")
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")
_THREADS = flags.DEFINE_integer("worker_threads", None, "Set by the benchmark itself.")

PREFIX = "tga"
SUBNET = "10.83.0"
PORT = 4711
BATCH = 64
# Per round; all but the first follow a step of the same mode.
STEPS = 5
LIMIT = 1.1


def _work():
    """Measures all modes in turn on one host, asks for advice and prints a JSON line."""
    import tensorflow as tf

    import terngrad_tf
    from terngrad_tf.distribute import all_gather_object

    tf.config.threading.set_intra_op_parallelism_threads(_THREADS.value)
    modes = ("float32", *terngrad_tf.distribute.WIRES)
    strategies = {
        mode: terngrad_tf.TernGradStrategy(
            telemetry_freq=100,
            wire="auto" if mode == "float32" else mode,
            quantization=terngrad_tf.Quantization(
                grad_bits=32 if mode == "float32" else 1, rotate=False, clip_factor=_CLIP.value
            ),
        )
        for mode in modes
    }
    steps = {m: tensorflow_worker.digits_step(s, BATCH, 0) for m, s in strategies.items()}
    times, rounds = {mode: [] for mode in modes}, {}

    def run(mode):
        start = time.perf_counter()
        for _ in range(STEPS):
            steps[mode]()
        return (time.perf_counter() - start) / STEPS

    for mode in modes:
        run(mode)
        # A round ends when the slowest host ends.
        seconds = max(all_gather_object(strategies[mode], f"warm {mode}", run(mode)))
        rounds[mode] = max(1, min(_ROUNDS.value, int(_SECONDS.value / STEPS / seconds)))
    for mode in measuring.in_turn(rounds):
        times[mode].append(run(mode))
    advice = {mode: terngrad_tf.advise(strategy) for mode, strategy in strategies.items()}
    print(
        json.dumps(
            {
                "times": times,
                "advice": {
                    mode: {"named": told.quickest, "seconds": told.seconds, "line": str(told)}
                    for mode, told in advice.items()
                },
                "taken": advice["auto"].current,
                "reasons": strategies["auto"].wire_choices,
            }
        ),
        flush=True,
    )


def _measure(num_hosts, rate):
    """Returns measurements and advice of one cluster as JSON values."""
    network = cluster_hosts.Network(PREFIX, SUBNET, num_hosts)
    options = {flag.name: flag.value for flag in (_CLIP, _ROUNDS, _SECONDS)}
    command = cluster_hosts.command("benchmarks.advice", worker_threads=1, **options)
    with network.up(rate), network.processes(PORT, [command] * num_hosts) as hosts:
        results = [host.answer() for host in hosts]
    milliseconds = {
        mode: 1e3
        * statistics.median(map(max, zip(*(r["times"][mode] for r in results), strict=True)))
        for mode in results[0]["times"]
    }
    return {
        "hosts": num_hosts,
        "rate": rate,
        "milliseconds": milliseconds,
        **{name: results[0][name] for name in ("advice", "taken", "reasons")},
    }


def table(cell):
    """Returns one cell as Markdown."""
    from terngrad_tf.distribute.exchange.wires import LOSSLESS

    milliseconds, advice, taken = cell["milliseconds"], cell["advice"], cell["taken"]
    quickest = min(milliseconds.values())
    lines = [
        f"\n{cell['hosts']} hosts, {cell['rate']}: {advice['allgather']['line']}\n",
        markdown.head(
            "mode | measured ms | expected by allgather's run | names | that / fastest | verdict"
        ),
    ]
    for mode, measured in milliseconds.items():
        is_auto = mode == "auto"
        expected = 1e3 * advice["allgather"]["seconds"][taken if is_auto else mode]
        named = advice[mode]["named"]
        ratio = milliseconds[named] / quickest
        verdict = "good" if ratio <= LIMIT else "WRONG"
        name = f"auto ({taken})" if is_auto else mode
        cells = [name, f"{measured:.1f}", f"{expected:.1f}", named, f"{ratio:.2f}", verdict]
        lines.append(markdown.row(cells))
    ratio = milliseconds[taken] / min(milliseconds[wire] for wire in LOSSLESS)
    verdict = "good" if ratio <= LIMIT else "WRONG"
    lines += ["", *cell["reasons"]]
    lines.append(f"{taken} / fastest lossless wire = {ratio:.2f}: {verdict}")
    return "\n".join(lines)


def main():
    """Measures every combination of hosts and rates and prints the tables."""
    if _THREADS.value:
        return _work()
    cells = []
    for num_hosts in map(int, _HOSTS.value):
        for rate in _RATES.value:
            cells.append(_measure(num_hosts, rate))
            print(table(cells[-1]), flush=True)
    if _JSON.value:
        figures.write_json(_JSON.value, {"clip_factor": _CLIP.value, "cells": cells})


if __name__ == "__main__":
    program.run(main)

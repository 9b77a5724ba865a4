"""Measures step time and received bytes on several hosts, for TensorFlow and PyTorch.

Creates hosts on this machine, joined by links of a chosen rate (`lib/netns.sh`: Linux, root,
iproute2). Processes wait on each host, and all modes take turns, round by round. "ternary" is the
default of the strategy, "unrotated" the rule of TernGrad's paper, which chooses its wire;
"unclipped" is the same without clipping. "bidirectional" is ternary and rounds the sum again on its
way back. "four_bits" sends codes of four bits. "auto" chooses among floats and these three. The
sparse modes are unclipped on the wires of these names. "local_steps" is the mean of 32 steps of
`DiLoCo` and the exchange that ends them; "local_steps_overlap" is the mean of 32 steps, 24 of which
run beside an exchange. Bytes are those that a host's network interface received, headers included;
CPU time is that of a process with all its threads. For AlexNet, the processes of few modes run at a
time: float32 beside TensorFlow's, all modes of PyTorch, and else one process per host. More of them
need more than 20 GB of memory on 4 hosts.

    python -m benchmarks.cluster --torch_python=TORCH_VENV/bin/python --json=cluster.json

PyTorch has its own environment, so that the libraries of the two frameworks cannot clash:
`python3 -m venv TORCH_VENV && TORCH_VENV/bin/pip install torch numpy`, with PyTorch's CPU build.
Without --torch_python its rows are missing.

The JSON file keeps finished cells (model, number of hosts, rate). Repeat the command to resume;
flags that select some cells add to the file, and tables and goals cover the whole file.
"""

import itertools
import os
import statistics
import sys

from absl import flags

from benchmarks.cluster import models
from benchmarks.lib import cluster_hosts, figures, markdown, means, measuring, program

_HOSTS = flags.DEFINE_list("hosts", ["2", "4"], "Numbers of hosts to measure.")
_RATES = flags.DEFINE_list(
    "rates",
    ["100mbit", "1gbit", "none"],
    "Rates of the links, such as 1gbit, none (unlimited) or 1gbit+20ms (with a round trip).",
)
_MODELS = flags.DEFINE_list("models", list(models.MODELS), "Workloads to measure.")
_ROUNDS = flags.DEFINE_integer(
    "rounds", 7, "Maximum number of measured rounds; the median counts.", lower_bound=1
)
_STEPS = flags.DEFINE_integer("steps", 3, "Most steps per mode and round.", lower_bound=1)
_SECONDS = flags.DEFINE_integer(
    "seconds", 60, "Time for the measured rounds of a mode; there is at least one round."
)
_BATCH = flags.DEFINE_integer("batch_size", 64, "Examples per worker (digits).", lower_bound=1)
_THREADS = flags.DEFINE_integer(
    "threads", None, "Compute threads per worker. Default: cores / hosts."
)
_TORCH = flags.DEFINE_string("torch_python", None, "Interpreter that has PyTorch.")
_JSON = flags.DEFINE_string("json", "cluster.json", "File with the finished cells.")

PREFIX = "tgb"
SUBNET = "10.80.0"
PORT = 4711
# PowerSGD's first two steps are float32; the first also compiles.
WARM_UP_STEPS = 3
# For `wire_trial`, which tries up to three wires: REST + 3 * TRIES + 1 steps.
TRIAL_STEPS = 24
# Longest round of more than one step.
ROUND_SECONDS = 6.0

# Modes of one process per host. Modes compared within a few per cent share none: more models of
# AlexNet's size made a process up to a fifth slower.
TENSORFLOW = (
    ("no_exchange", "ternary", "bidirectional"),
    ("unrotated",),
    ("unclipped", "sparse", "sparse_bidirectional"),
    ("four_bits",),
    ("auto",),
    ("local_steps",),
    ("local_steps_overlap",),
    ("float32",),
    ("tensorflow",),
)
TORCH = ("ddp_float32", "ddp_fp16", "ddp_powersgd")
MODES = (*itertools.chain(*TENSORFLOW), *TORCH)
WITH_TRIALS = ("unrotated", "unclipped")

_MODES = flags.DEFINE_list(
    "modes", list(MODES), "Modes to measure in missing cells; ternary is always measured."
)
flags.register_validator(
    _MODES,
    lambda names: {*names} <= {*MODES},
    message=f"--modes must name some of {', '.join(MODES)}",
)

# (rate, mode, other mode, largest ratio of their step times)
GOALS = (
    *(("1gbit", "ternary", f"ddp_{other}", 1.0) for other in ("float32", "fp16", "powersgd")),
    *(("100mbit", "ternary", f"ddp_{other}", 1.0) for other in ("float32", "fp16")),
    *(("100mbit", ours, "ddp_powersgd", 1.3) for ours in ("ternary", "bidirectional")),
    ("100mbit", "unclipped", "ddp_powersgd", 1.0),
    ("10mbit", "unclipped", "ddp_powersgd", 1.2),
    *((rate, "float32", "tensorflow", 1.05) for rate in ("100mbit", "1gbit", "none")),
)


def _commands(network, modes, port, model):
    """Yields the command of each host."""
    threads = _THREADS.value or max(1, (os.cpu_count() or 1) // network.num_hosts)
    for index in range(network.num_hosts):
        common = [model, network.interface(index), str(threads), str(_BATCH.value)]
        if modes[0] in TORCH:
            first, *_ = network.addresses(port)
            where = [str(index), str(network.num_hosts), first]
            program = ["-m", "benchmarks.cluster.torch_worker", ",".join(modes)]
            yield [_TORCH.value, *program, *where, *common]
        else:
            yield [
                sys.executable,
                "-m",
                "benchmarks.cluster.tensorflow_worker",
                ",".join(modes),
                *common,
            ]


def _measure_together(network, groups, model):
    """Measures the modes of all groups in turn; returns step measurements per mode."""

    def commands_of(modes, port):
        return _commands(network, modes, port, model)

    with network.workers(PORT, groups, commands_of) as answers_of:

        def run(mode, num_steps):
            answers = answers_of(mode, num_steps)
            # A step ends when the slowest host ends.
            return {
                "milliseconds": 1e3 * max(answer["seconds"] for answer in answers),
                "cpu_milliseconds": 1e3 * statistics.mean(a["cpu_seconds"] for a in answers),
                "received_bytes": statistics.mean(answer["received"] for answer in answers),
            }

        modes = list(itertools.chain(*groups))
        results = {mode: [] for mode in modes}
        steps, rounds = {}, {}
        for mode in modes:
            for _ in range(TRIAL_STEPS if mode in WITH_TRIALS else WARM_UP_STEPS):
                seconds = run(mode, 1)["milliseconds"] / 1e3
            steps[mode] = max(1, min(_STEPS.value, int(ROUND_SECONDS / seconds)))
            rounds[mode] = max(1, min(_ROUNDS.value, int(_SECONDS.value / seconds / steps[mode])))
        for mode in measuring.in_turn(rounds):
            results[mode].append(run(mode, steps[mode]))
        return results


def _chosen(groups):
    """Returns the groups without the modes that are not measured."""
    modes = {*_MODES.value, "ternary"}
    chosen = [tuple(mode for mode in group if mode in modes) for group in groups]
    return [group for group in chosen if group]


def _measure(model, num_hosts, rate):
    """Measures one cell; returns a row per mode."""
    torch = [TORCH] if _TORCH.value else []
    *others, float32, tensorflow = TENSORFLOW
    turns = [[group] for group in others] + [[float32, tensorflow], torch]
    if model == "digits":
        turns = [list(itertools.chain(*turns))]
    results = {}
    with cluster_hosts.Network(PREFIX, SUBNET, num_hosts).up(rate) as network:
        for groups in filter(None, map(_chosen, turns)):
            results |= _measure_together(network, groups, model)
    return [
        {
            "model": model,
            "hosts": num_hosts,
            "rate": rate,
            "mode": mode,
            "rounds": len(values),
            **means.medians(values),
        }
        for mode, values in results.items()
    ]


def cell(row):
    """Returns the identity of a cell: (model, hosts, rate)."""
    return row["model"], row["hosts"], row["rate"]


def table(rows):
    """Returns all rows as Markdown; ratios are to the ternary row of the same cell."""
    lines = []
    for _, group in itertools.groupby(rows, key=cell):
        group = list(group)
        ternary = next(row for row in group if row["mode"] == "ternary")["milliseconds"]
        for row in group:
            cells = [*cell(row), row["mode"], f"{row['milliseconds']:.1f}"]
            cells.append(f"{row['milliseconds'] / ternary:.2f}")
            cells.append(f"{row['cpu_milliseconds']:.1f}")
            cells.append(f"{row['received_bytes'] / 1e6:.3f}")
            lines.append(cells)
    titles = "model | hosts | link | gradients | ms | ternary = 1 | CPU ms per host | received MB"
    return markdown.table(titles, lines)


def summary(rows):
    """Returns milliseconds per step as Markdown, a line per cell."""
    modes = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
    lines = []
    for name, group in itertools.groupby(rows, key=cell):
        milliseconds = {row["mode"]: f"{row['milliseconds']:,.0f}" for row in group}
        lines.append([*name, *(milliseconds.get(mode, "") for mode in modes)])
    return markdown.table(f"model | hosts | link | {' | '.join(modes)}", lines)


def goals(rows):
    """Returns one line per goal and cell with its verdict."""
    lines = []
    for (model, hosts, rate), group in itertools.groupby(rows, key=cell):
        milliseconds = {row["mode"]: row["milliseconds"] for row in group}
        for goal_rate, mode, other, limit in GOALS:
            if goal_rate == rate and {mode, other} <= milliseconds.keys():
                ratio = milliseconds[mode] / milliseconds[other]
                verdict = "holds" if ratio <= limit else "MISSED"
                lines.append(
                    f"- {model}, {hosts} hosts, {rate}: {mode} / {other} = {ratio:.2f}, "
                    f"at most {limit:g}: {verdict}"
                )
    return "\n".join(lines)


def main():
    """Measures the missing cells and prints the table."""
    settings = {"batch_size": _BATCH.value, "threads": _THREADS.value, "torch": bool(_TORCH.value)}
    rows = figures.Finished(_JSON.value, settings, "rows")
    for chosen in itertools.product(_MODELS.value, map(int, _HOSTS.value), _RATES.value):
        if chosen in map(cell, rows):
            continue
        print(f"{chosen[0]}, {chosen[1]} hosts, {chosen[2]} ...", flush=True)
        rows.add(*_measure(*chosen))
    print(f"\n{table(rows)}\n\n{summary(rows)}\n\n{goals(rows)}")


if __name__ == "__main__":
    program.run(main)

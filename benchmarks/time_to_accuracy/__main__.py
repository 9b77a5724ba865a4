"""Measures the time to an accuracy over slow links: ternary gradients, local steps, PyTorch.

All modes train the same network on the same images of Fashion-MNIST from the same weights, on hosts
of this machine that are joined by links of a chosen rate (`lib/netns.sh`: Linux, root,
iproute2):

    python -m benchmarks.time_to_accuracy --torch_python=TORCH_VENV/bin/python \
        --raw_dir=/usr/share/datasets/fashion-mnist --json=time_to_accuracy.json

A file has one optimizer: time_to_accuracy_adamw.json is of --optimizer=adamw.

Because float32 would take an hour over 10 Mbit/s, --parts measures the time in three parts:

* `trainings`: each mode trains over links without a limit and is tested every 32 steps. Each mode
  uses the rate from --learning_rates that was best on 5,000 held-out images, on average over seeds.
* `steps`: over each link all modes take steps in turn, round by round: the time of a step.
* `checks`: trainings over a link itself, from --checks, to compare.

The time to an accuracy is the number of steps from the first part times the time of a step from the
second. Tests, the start of processes and the first broadcast of the weights do not count. PyTorch
has its own environment, as in `benchmarks.cluster`, here with torchft:
`TORCH_VENV/bin/pip install torch torchft numpy`. `torch_worker` holds its modes. `hivemind_32`
needs `pip install hivemind "numpy<2.4"`, too.

The JSON file keeps finished rows. Repeat the command to resume; flags that select some rows add to
the file, and tables and pictures (--images) show the whole file.
"""

import contextlib
import itertools
import json
import os
import pathlib
import statistics
import sys
import tempfile

import numpy as np
from absl import flags

from benchmarks.lib import cluster_hosts, fashion, figures, measuring, program
from benchmarks.time_to_accuracy import picture, tables, tensorflow_worker, workload

TEST_EVERY = 32
FIRST_TEST = 96
PREFIX, SUBNET, PORT = "tgr", "10.81.0", 4721
# Two float32 steps of PowerSGD, and one that compiles.
WARM_UP_STEPS = 3
# Longest round of more than one step.
ROUND_SECONDS = 6.0

_RAW_DIR = flags.DEFINE_string("raw_dir", None, "Folder with Fashion-MNIST's four archives.")
_TORCH = flags.DEFINE_string("torch_python", None, "Interpreter that has PyTorch.")
_PARTS = flags.DEFINE_multi_enum(
    *("parts", ["trainings", "steps", "checks"], ["trainings", "steps", "checks"]),
    "Part to measure; repeatable.",
)
_MODES = flags.DEFINE_list(
    "modes",
    [mode for mode in tables.NAMES if "hivemind" not in mode],
    "Modes to measure; hivemind_32, too.",
)
_HOSTS = flags.DEFINE_integer("hosts", 2, "Hosts.", lower_bound=2)
_LINKS = flags.DEFINE_list("links", list(tables.LINKS), "Rates of the links.")
_CHECKS = flags.DEFINE_list("checks", [], "Trainings over links, such as 10mbit:local_32.")
_OPTIMIZER = flags.DEFINE_enum("optimizer", "sgd", ["sgd", "adamw"], "Optimizer of all modes.")
_RATES = flags.DEFINE_list("learning_rates", ["0.01", "0.03"], "Rates to choose from.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds; checks take the first.")
_STEPS = flags.DEFINE_integer("steps", 512, "Steps of a training.", lower_bound=2 * TEST_EVERY)
_LEVELS = flags.DEFINE_list(
    "accuracies", ["0.84", "0.86"], "Accuracies; the picture shows the first."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Most rounds of steps; the median counts.")
_SECONDS = flags.DEFINE_integer("seconds", 40, "Time for a mode's rounds; there is at least one.")
_JSON = flags.DEFINE_string("json", "time_to_accuracy.json", "File with the finished rows.")
_IMAGES = flags.DEFINE_string("images", None, "Folder to draw time_to_accuracy_*.svg in.")


class Workers:
    """The processes of all hosts, {mode: list of `cluster_hosts.Process`}."""

    def __init__(self, hosts_of):
        self._hosts_of = hosts_of

    def ask(self, do, mode, **what):
        """Returns the answers of the hosts; see `worker`."""
        hosts = self._hosts_of[mode]
        for host in hosts:
            host.ask(json.dumps({"do": do, "mode": mode, **what}))
        return [host.answer() for host in hosts]

    def steps(self, mode, count):
        """Returns the slowest host's seconds and the mean received bytes of `count` steps."""
        answers = self.ask("steps", mode, count=count)
        seconds = max(answer["seconds"] for answer in answers)
        return seconds, statistics.mean(answer["received"] for answer in answers)

    def accuracy(self, mode, split):
        """Returns the accuracy on a split; each host tests its share."""
        answers = self.ask("test", mode, split=split)
        return sum(a["right"] for a in answers) / sum(a["images"] for a in answers)


@contextlib.contextmanager
def workers(link, modes, data_dir):
    """Yields `Workers` on hosts with links of a rate, in this context."""
    threads = str(max(1, (os.cpu_count() or 1) // _HOSTS.value))
    kinds = {
        tuple(m for m in modes if _is_of_tensorflow(m)): "tensorflow",
        tuple(m for m in modes if not _is_of_tensorflow(m)): "torch",
    }
    with contextlib.ExitStack() as stack:
        network = cluster_hosts.Network(PREFIX, SUBNET, _HOSTS.value)
        stack.enter_context(network.up(link))
        hosts_of = {}
        for port, (group, kind) in enumerate(kinds.items(), PORT):
            if not group:
                continue
            python = {"tensorflow": sys.executable, "torch": _TORCH.value}[kind]
            address = [network.addresses(port)[0]] if kind == "torch" else []
            commands = [
                [
                    *(python, "-m", f"benchmarks.time_to_accuracy.{kind}_worker"),
                    *(str(index), str(_HOSTS.value), network.interface(index), data_dir),
                    *(threads, *address),
                ]
                for index in range(_HOSTS.value)
            ]
            hosts = stack.enter_context(network.processes(port, commands))
            for host in hosts:
                host.answer()
            hosts_of |= dict.fromkeys(group, hosts)
        yield Workers(hosts_of)


def chosen_modes():
    """Returns the modes to measure: without PyTorch, only TensorFlow's."""
    return [m for m in _MODES.value if _TORCH.value or _is_of_tensorflow(m)]


def exchanging_modes():
    """Returns the modes to measure that exchange."""
    return [m for m in chosen_modes() if m != workload.ALONE]


def _is_of_tensorflow(mode):
    return mode == workload.ALONE or mode in tensorflow_worker.MODES


def begin(team, mode, rate, seed):
    """Begins a training."""
    options = {"optimizer": _OPTIMIZER.value, "num_steps": _STEPS.value}
    team.ask("begin", mode, rate=rate, seed=seed, **options)


def train(team, mode, rate, seed, link):
    """Trains once and returns the row."""
    begin(team, mode, rate, seed)
    row = {"kind": "training", "hosts": _HOSTS.value, "link": link, "mode": mode}
    row |= {"rate": rate, "seed": seed, "steps": [], "accuracy": [], "seconds": []}
    seconds = 0.0
    for step in range(TEST_EVERY, _STEPS.value + 1, TEST_EVERY):
        seconds += team.steps(mode, TEST_EVERY)[0]
        if step == TEST_EVERY:
            row["first_seconds"] = seconds
        # Before, no mode has reached the accuracies.
        if step >= FIRST_TEST:
            row["steps"].append(step)
            row["accuracy"].append(team.accuracy(mode, "test"))
            row["seconds"].append(seconds)
    return row | {"held_out": team.accuracy(mode, "held_out")}


def time_steps(team, modes, link):
    """Times the steps of all modes over a link in turn; returns their rows."""
    counts, rounds, found = {}, {}, {mode: [] for mode in modes}
    for mode in modes:
        begin(team, mode, 0.01, 0)
        local = any(word in mode for word in ("local", "diloco", "hivemind"))
        if local:
            # Whole periods include their exchanges.
            seconds = team.steps(mode, TEST_EVERY)[0] / TEST_EVERY
        else:
            team.steps(mode, WARM_UP_STEPS - 1)
            seconds = team.steps(mode, 1)[0]
        most = max(1, min(TEST_EVERY, int(ROUND_SECONDS / seconds)))
        counts[mode] = TEST_EVERY if local else most
        rounds[mode] = max(1, min(_ROUNDS.value, int(_SECONDS.value / seconds / counts[mode])))
    for mode in measuring.in_turn(rounds):
        totals = team.steps(mode, counts[mode])
        found[mode].append([total / counts[mode] for total in totals])
    for mode, values in found.items():
        seconds, received = (statistics.median(v) for v in zip(*values, strict=True))
        yield {
            **{"kind": "step", "hosts": _HOSTS.value, "link": link, "mode": mode},
            **{"milliseconds": 1e3 * seconds, "received_bytes": received, "rounds": len(values)},
        }


def missing_trainings(rows):
    """Yields (mode, rate, seed) of the trainings to run."""
    for seed, mode in itertools.product(map(int, _SEEDS.value), chosen_modes()):
        found = tables.trainings(rows, _HOSTS.value, mode)
        done = {(row["rate"], row["seed"]) for row in found}
        for rate in map(float, _RATES.value):
            if (rate, seed) not in done:
                yield mode, rate, seed


def write_data(folder):
    """Writes the workers' input: images to train, to choose rates by, and to test."""
    data = fashion.load(_RAW_DIR.value, 60_000)
    images, labels = data["train"]
    splits = {
        "train": (images[: -workload.HELD_OUT], labels[: -workload.HELD_OUT]),
        "held_out": (images[-workload.HELD_OUT :], labels[-workload.HELD_OUT :]),
        "test": data["test"],
    }
    for split, (images, labels) in splits.items():
        np.save(folder / f"{split}_images.npy", images)
        np.save(folder / f"{split}_labels.npy", labels.astype("int64"))


def measure(rows, data_dir):
    """Adds the missing rows."""

    def add(row):
        rows.add(row)
        print(", ".join(f"{k} {v}" for k, v in row.items() if not isinstance(v, list)), flush=True)

    if "trainings" in _PARTS.value and any(missing_trainings(rows)):
        with workers("none", chosen_modes(), data_dir) as team:
            for training in missing_trainings(rows):
                add(train(team, *training, "none"))
    for link in _LINKS.value if "steps" in _PARTS.value else []:
        done = {(row["kind"], row["hosts"], row["link"], row["mode"]) for row in rows}
        if not all(("step", _HOSTS.value, link, mode) in done for mode in exchanging_modes()):
            with workers(link, exchanging_modes(), data_dir) as team:
                for row in time_steps(team, exchanging_modes(), link):
                    add(row)
    for check in _CHECKS.value if "checks" in _PARTS.value else []:
        link, mode = check.split(":")
        if not tables.trainings(rows, _HOSTS.value, mode, link):
            with workers(link, [mode], data_dir) as team:
                rate = tables.best_rate(rows, _HOSTS.value, mode)
                add(train(team, mode, rate, int(_SEEDS.value[0]), link))


def main():
    """Measures the missing rows, prints the tables and draws."""
    settings = {"optimizer": _OPTIMIZER.value, "steps": _STEPS.value}
    settings["batch_size"] = workload.BATCH_SIZE
    rows = figures.Finished(_JSON.value, settings, "rows")
    with tempfile.TemporaryDirectory() as folder:
        write_data(pathlib.Path(folder))
        measure(rows, folder)
    levels = [float(level) for level in _LEVELS.value]
    for hosts in sorted({row["hosts"] for row in rows}):
        print(f"\n{hosts} hosts\n\n{tables.accuracies(rows, hosts, levels)}")
        print(f"\n{tables.step_times(rows, hosts)}\n\n{tables.times(rows, hosts, levels)}")
    print(f"\n{tables.checks(rows, levels[0])}")
    if _IMAGES.value:
        picture.write(rows, levels[0], pathlib.Path(_IMAGES.value))


if __name__ == "__main__":
    flags.mark_flag_as_required("raw_dir")
    program.run(main)

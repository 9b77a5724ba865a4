"""Measures how soon training continues after a host is killed, and when all hosts train again.

    python -m benchmarks.recovery --torch_python=TORCH_VENV/bin/python --json=recovery.json

Three workers train LeNet on scikit-learn's digits, each on a host of this machine (see
`lib/netns.sh`: Linux, root, iproute2). The benchmark kills the program and the supervisor of one
worker with SIGKILL, at a random moment between two checkpoints, and starts it again: at once, or
after the next step of the others. Modes:

* synchronous: all wait for the killed worker; `mnist_distributed_train --max_restarts`.
* elastic: the others continue without it; also `--min_workers=1 --replicate_checkpoints=1`.
* torchft: its `Manager` exchanges gradients among at least two of three groups in every step. A
  worker that returns gets its state from another. The lighthouse has another host, which is never
  killed. `torchft_worker` has the timeouts. `TORCH_VENV/bin/pip install torch torchft`.

Each repeat starts each mode anew. The JSON file keeps finished rows; repeat the command to resume.
benchmarks/results/recovery.json has the figures of the documentation.
"""

import contextlib
import itertools
import os
import pathlib
import random
import sys
import tempfile
import time

import numpy as np
from absl import flags

from benchmarks.chaos.members import MembersRun
from benchmarks.chaos.run import Broken, Run
from benchmarks.lib import cluster_hosts, digits, figures, program
from benchmarks.recovery import runs, tables

PREFIX, SUBNET = "tgv", "10.95.0"
SAVE_SECONDS = 10
# The same images as in torchft_worker.
FLAGS = {"image_size": 28, "batch_size": 32, "save_interval_secs": SAVE_SECONDS, "log_freq": 1}
ELASTIC = {"min_workers": 1, "replicate_checkpoints": 1}
TORCHFT = "torchft"
MODES = {
    "synchronous": (Run, {}),
    "elastic": (MembersRun, ELASTIC),
    TORCHFT: (runs.Torchft, {}),
}
AT_ONCE, LATER = "at once", "later"
# Modes without the other start.
STARTS = {"synchronous": [AT_ONCE]}
KILLED = "chief", "another"
COMMAND = "python -m benchmarks.recovery --torch_python=TORCH_VENV/bin/python"

_TORCH = flags.DEFINE_string("torch_python", None, "Interpreter with torchft. None: no torchft.")
_MODES = flags.DEFINE_multi_enum("mode", list(MODES), list(MODES), "Mode to measure; repeatable.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Kills of each kind.", lower_bound=1)
_JSON = flags.DEFINE_string("json", "recovery.json", "File with the finished rows.")


@contextlib.contextmanager
def _run(mode, folder, data):
    """Starts a run whose workers have all taken a step, in this context."""
    kind, options = MODES[mode]
    network = cluster_hosts.Network(PREFIX, SUBNET, runs.WORKERS + (mode == TORCHFT))
    disks = [folder / str(task) for task in range(network.num_hosts)]
    for disk in disks:
        disk.mkdir()
    own = {"python": _TORCH.value} if mode == TORCHFT else {"max_steps": 10**6, **FLAGS}
    with network.up("none"):
        run = kind(network, disks, data_dir=data, **own, **options)
        try:
            runs.await_common_step(run, range(runs.WORKERS), time.time())
            yield run
        finally:
            run.kill()


def measure(mode, seed, data):
    """Yields the rows of a mode's kills."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, _run(mode, pathlib.Path(name), data) as run:
        for started, killed in itertools.product(STARTS.get(mode, [AT_ONCE, LATER]), KILLED):
            # Checkpoints and a new worker's first steps come between.
            time.sleep(draw.uniform(SAVE_SECONDS, 2 * SAVE_SECONDS))
            task = run.chief if killed == "chief" else (run.chief + 1) % runs.WORKERS
            found = runs.lose(run, task, started == LATER)
            kind = {"mode": mode, "killed": killed, "started": started, "seed": seed}
            yield kind | found | {"load": os.getloadavg()[0]}


def write_data(folder):
    """Writes the same images for both frameworks."""
    import slim_data

    slim_data.convert("digits", str(folder), shard=True, train_shards=runs.WORKERS)
    images, labels = digits.load(28)["train"]
    np.save(folder / "images.npy", images.transpose(0, 3, 1, 2))
    np.save(folder / "labels.npy", labels.astype("int64"))


def main():
    """Measures the missing rows and prints a table."""
    settings = {"workers": runs.WORKERS, **FLAGS}
    rows = figures.Finished(_JSON.value, settings, "rows", command=COMMAND)
    modes = [mode for mode in _MODES.value if _TORCH.value or mode != TORCHFT]
    done = {(row["mode"], row["seed"]) for row in rows}
    with tempfile.TemporaryDirectory() as name:
        write_data(pathlib.Path(name))
        for seed, mode in itertools.product(range(_REPEATS.value), modes):
            if (mode, seed) in done:
                continue
            try:
                new = list(measure(mode, seed, pathlib.Path(name)))
            except Broken as error:
                sys.exit(f"recovery: {mode}: {error}")
            rows.add(*new)
            print(*new, sep="\n", flush=True)
    print(tables.recoveries(rows))


if __name__ == "__main__":
    program.run(main)

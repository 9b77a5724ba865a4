"""Compares training in a subspace with other ways to use a few more epochs.

    python -m benchmarks.subspace --json=subspace.json

Trains LeNet on 10,000 and on 2,000 images of Fashion-MNIST (10,000 for testing), and LeNet and
ResNet-20 on scikit-learn's handwritten digits (1,437 for training, 360 for testing: one test image
is 0.28 %), at a constant rate, and then continues from the end in each of these ways:

- continued: phase 1 continues;
- rate to 0: phase 1 continues while its rate falls linearly to 0;
- P-BFGS and P-SGD in the 16 components of phase 1's last 20 snapshots, from its final weights or
  its moving average. Batches have 512 images for P-BFGS and 128 for P-SGD unless a name says
  otherwise; "full batch" is one step per epoch.

Each way is tested at its final weights and at their moving average, which has the programs' decay
(min(0.9999, (1 + n) / (10 + n)) at step n; phase 2 starts a new average). Phase 1 and "continued"
are also tested at the mean of the last 20 snapshots. Each seed trains once with correct labels and
once with 20 % wrong training labels. Before each test, for all ways alike, batch-norm statistics
are re-estimated over the training images. Training loss is the loss of the first 5,000 images. Time
is CPU time after phase 1, in epochs of phase 1; building graphs and testing do not count.

The JSON file keeps finished runs. Repeat the command to resume; flags that select some runs add to
the file, and the tables show the whole file.
"""

import collections
import dataclasses
import itertools
import json
import statistics

from absl import app, flags

from benchmarks.lib import figures, markdown, means, program
from benchmarks.subspace import settings as subspace_settings

NOISES = {0.0: "", 0.2: ", 20 % wrong labels"}
# Title, factor and digits of a result.
QUANTITIES = {
    "test_accuracy": ("test accuracy / %", 100, 2),
    "test_loss": ("test loss", 1, 4),
    "training_loss": ("training loss", 1, 4),
}
# Baselines: a way, its weights, and True if it takes no epoch.
BASELINES = (
    ("phase 1", "moving average", True),
    ("phase 1", "mean of 20", True),
    ("continued", "moving average", False),
)

_TASKS = flags.DEFINE_list(
    "tasks", list(subspace_settings.TASKS), f"Tasks, from {', '.join(subspace_settings.TASKS)}."
)
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds; each is one run.")
_NOISES = flags.DEFINE_list("noises", list(map(str, NOISES)), "Shares of wrong labels: 0.0, 0.2.")
_LENGTHS = flags.DEFINE_list(
    "lengths", None, "Epochs after phase 1 at which ways are tested. Default: the task's."
)
_RAW_DIR = flags.DEFINE_string(
    "raw_dir", "/usr/share/datasets/fashion-mnist", "Folder with the archives of Fashion-MNIST."
)
_JSON = flags.DEFINE_string("json", "subspace.json", "File with the finished runs.")


def tasks():
    """Returns `subspace_settings.TASKS` with the lengths of the command line."""
    found = subspace_settings.TASKS
    if not _LENGTHS.value:
        return found
    lengths = tuple(map(int, _LENGTHS.value))
    return {name: dataclasses.replace(task, lengths=lengths) for name, task in found.items()}


def settings():
    """Returns the settings that all runs of a file share."""
    of_tasks = {name: dataclasses.asdict(task) for name, task in tasks().items()}
    variants = {n: dataclasses.asdict(v) for n, v in subspace_settings.PHASE_TWO.items()}
    # JSON has lists instead of tuples.
    return json.loads(json.dumps({"tasks": of_tasks, "phase_two": variants}))


def results(runs, task):
    """Returns {(way, weights, epochs after phase 1): {(noise, seed): result}}."""
    found = collections.defaultdict(dict)
    for run in runs:
        for result in run["results"] if run["task"] == task else []:
            key = result["method"], result["weights"], result["epochs"]
            found[key][run["noise"], run["seed"]] = result
    return found


def table(found):
    """Returns mean and standard deviation over seeds: a row per way, weights and length.

    The last columns count the runs with a lower test loss than each of `BASELINES`, after the same
    number of epochs or after none.
    """
    columns = list(itertools.product(NOISES, QUANTITIES))
    heads = [f"{QUANTITIES[quantity][0]}{NOISES[noise]}" for noise, quantity in columns]
    heads += ["time", *(f"below {way}'s {weights}" for way, weights, _ in BASELINES)]
    lines = []
    for key, row in found.items():
        *way, epochs = key
        cells = []
        for noise, quantity in columns:
            _, factor, digits = QUANTITIES[quantity]
            here = [factor * result[quantity] for (n, _), result in row.items() if n == noise]
            cells.append(means.with_deviation(here, digits) if here else "")
        cells.append(f"{statistics.mean(result['time'] for result in row.values()):.1f}")
        for base, base_weights, at_once in BASELINES:
            other = found.get((base, base_weights, 0 if at_once else epochs), {})
            both = [] if [base, base_weights] == way else row.keys() & other.keys()
            won = sum(row[run]["test_loss"] < other[run]["test_loss"] for run in both)
            cells.append(f"{won} of {len(both)}" if both else "")
        lines.append([*key, *cells])
    return markdown.table(f"way | weights | epochs more | {' | '.join(heads)}", lines)


def show(runs):
    """Prints all tables."""
    for name, task in subspace_settings.TASKS.items():
        if found := results(runs, name):
            print(f"\n{task.title}:\n\n{table(found)}")


def main():
    """Trains the missing runs and prints the tables."""
    known = list(subspace_settings.TASKS)
    if unknown := set(_TASKS.value) - set(known):
        raise app.UsageError(f"--tasks must be in {known}. Received: {sorted(unknown)}")
    runs = figures.Finished(_JSON.value, settings())
    noises = map(float, _NOISES.value)
    chosen = itertools.product(_TASKS.value, map(int, _SEEDS.value), noises)
    missing = runs.missing(chosen, "task", "seed", "noise")
    for task, group in itertools.groupby(missing, key=lambda run: run[0]):
        from benchmarks.subspace import study as subspace_study  # loads TensorFlow

        study = subspace_study.Study(tasks()[task], _RAW_DIR.value)
        for _, seed, noise in group:
            done = list(study.run(seed, noise))
            runs.add({"task": task, "seed": seed, "noise": noise, "results": done})
            print(f"{task}, seed {seed}, {noise:.0%} wrong labels", flush=True)
    show(runs)


if __name__ == "__main__":
    program.run(main)

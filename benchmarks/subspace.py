"""What training in a subspace gains over other ways to spend a few more epochs.

    python -m benchmarks.subspace --json=subspace.json

Trains LeNet and ResNet-20 on scikit-learn's handwritten digits (1,437 for training, 360 for
testing: one of these is 0.28 %) for 6 epochs at a constant rate, and then goes on from the same
weights in every way that is to be compared, for 1, 2 and 5 epochs:

- continued: phase 1 goes on; also with the mean of the last 20 snapshots instead of the weights;
- rate to 0: phase 1 goes on while its rate falls in a line to 0;
- rate to 0 from the start on: a run of its own of as many epochs altogether;
- mean of 20: the mean of phase 1's last 20 snapshots (one every 3 steps), no epoch at all;
- P-BFGS and P-SGD in the subspace of phase 1's snapshots. "Full batch" is one step an epoch. The
  first variant has the settings of the others but for what their names say: the last 20 snapshots,
  16 components, all training images a step, from the last weights.

All that once with right labels and once with 20 % of the training labels wrong, for each seed.
Batch-norm statistics are re-estimated over the training images before each test, for all ways
alike; "moving statistics" shows phase 1 without that.

Finished runs stand in the JSON file. The same command goes on where it was stopped, and flags that
choose part of the runs add to the file; the tables show all that it holds.
"""

import dataclasses
import itertools
import pathlib
import statistics

from absl import app, flags

from benchmarks import figures, subspace_settings

NOISES = {0.0: "right", 0.2: "20 % wrong"}  # labels
# Of a result: title, factor, digits.
QUANTITIES = {
    "test_accuracy": ("Test accuracy in %", 100, 2),
    "test_loss": ("Test loss", 1, 4),
    "training_loss": ("Training loss", 1, 4),
    "time": ("CPU time after phase 1, one of its epochs = 1", 1, 1),
}

_NETS = flags.DEFINE_list("nets", list(subspace_settings.NETS), "Networks: lenet, resnet_20.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3", "4", "5"], "Seeds, one run each.")
_JSON = flags.DEFINE_string("json", "subspace.json", "File with the finished runs.")


def settings():
    """Everything that the runs of a file share."""
    return {
        "nets": {net: dataclasses.asdict(s) for net, s in subspace_settings.NETS.items()},
        "phase_two": {n: dataclasses.asdict(v) for n, v in subspace_settings.PHASE_TWO.items()},
        "lengths": list(subspace_settings.LENGTHS),
    }


def table(runs, net, quantity):
    """Mean and standard deviation over seeds: a row a way, a column a length and kind of labels."""
    _, factor, digits = QUANTITIES[quantity]
    cells = {}
    for run in runs:
        for result in run["results"] if run["net"] == net else []:
            key = result["method"], run["noise"], result["epochs"]
            cells.setdefault(key, []).append(factor * result[quantity])
    columns = list(itertools.product(NOISES, (0, *subspace_settings.LENGTHS)))
    heads = [f"{NOISES[noise]} labels, +{length}" for noise, length in columns]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(columns)]
    for method in dict.fromkeys(method for method, _, _ in cells):
        row = [cells.get((method, *column)) for column in columns]
        lines.append(f"| {method} | {' | '.join(cell(values, digits) for values in row)} |")
    return "\n".join(lines)


def cell(values, digits):
    """Mean of values, and their standard deviation where there are several."""
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def comparison(runs, net, method):
    """In how many runs a way is better than, as good as and worse than each other."""
    ways = {}
    for run in runs:
        for result in run["results"] if run["net"] == net else []:
            for length in subspace_settings.LENGTHS:
                if result["epochs"] in (0, length):
                    key = run["noise"], run["seed"], length
                    ways.setdefault(result["method"], {})[key] = result
    quantities = ("test_accuracy", "test_loss", "training_loss")
    columns = list(itertools.product(quantities, subspace_settings.LENGTHS))
    heads = [f"{quantity.replace('_', ' ')}, +{length}" for quantity, length in columns]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(columns)]
    for other in ways:
        if other != method:
            row = [wins(ways[method], ways[other], *column) for column in columns]
            lines.append(f"| {other} | {' | '.join(row)} |")
    return "\n".join(lines)


def wins(one, other, quantity, length):
    """Numbers of runs in which one way's results are better, equal and worse."""
    sign = 1 if quantity == "test_accuracy" else -1
    keys = [key for key in one if key[2] == length]
    gains = [sign * (one[key][quantity] - other[key][quantity]) for key in keys]
    better, worse = sum(g > 0 for g in gains), sum(g < 0 for g in gains)
    return f"{better} / {len(gains) - better - worse} / {worse}"


def show(runs):
    """Prints all tables."""
    for net in dict.fromkeys(run["net"] for run in runs):
        for quantity, (title, _, _) in QUANTITIES.items():
            print(f"\n{net}. {title}, mean ± standard deviation over seeds:\n")
            print(table(runs, net, quantity))
        first = next(iter(subspace_settings.PHASE_TWO))
        print(f"\n{net}. {first}: runs in which it is better / equal / worse\n")
        print(comparison(runs, net, first))


def main(argv):
    """Does the runs that are missing and prints the tables."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if unknown := set(_NETS.value) - set(subspace_settings.NETS):
        raise app.UsageError(f"--nets must be of lenet, resnet_20. Received: {sorted(unknown)}")
    path = pathlib.Path(_JSON.value)
    runs = figures.read_finished(path, settings())
    done = {(run["net"], run["seed"], run["noise"]) for run in runs}
    chosen = itertools.product(_NETS.value, map(int, _SEEDS.value), NOISES)
    missing = [run for run in chosen if run not in done]
    print(f"{len(done)} runs are done, {len(missing)} are to do", flush=True)
    for net, group in itertools.groupby(missing, key=lambda run: run[0]):
        from benchmarks import subspace_study  # loads TensorFlow

        study = subspace_study.Study(net)
        for _, seed, noise in group:
            results = list(study.run(seed, noise))
            runs.append({"net": net, "seed": seed, "noise": noise, "results": results})
            figures.write_json(path, {"settings": settings(), "runs": runs})
            print(f"{net}, seed {seed}, {NOISES[noise]} labels", flush=True)
    show(runs)
    return 0


if __name__ == "__main__":
    app.run(main)

"""Compares the strategy's default gradients with float ones and the paper's rule, at equal rates.

    python -m benchmarks.fidelity.default --raw_dir=/usr/share/datasets/fashion-mnist

Trains the small CNN (0.08 M weights) on 12,000 images of Fashion-MNIST, or other files in MNIST's
format, by 8 workers of 8 images each for 2 epochs, with each optimizer at two rates: about the best
one of float gradients, and a third of it. A seed fixes initial weights and the order of images for
all ways alike, so differences to float are paired; p is from Student's paired test. The file keeps
finished runs, a JSON line each; repeat the command to resume or to add seeds. The runs of the
table in docs/results are in benchmarks/results/default_gradients.jsonl.
"""

import pathlib

from absl import app, flags

from benchmarks.fidelity import tables
from benchmarks.fidelity.rows import Rows
from benchmarks.fidelity.settings import FLOAT, Run

_RAW_DIR = flags.DEFINE_string("raw_dir", None, "Folder with Fashion-MNIST's four archives.")
_FILE = flags.DEFINE_string("file", "default.jsonl", "File with the finished runs.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3", "4", "5"], "Seeds; each is one run.")

IMAGES, EPOCHS, WORKERS, BATCH = 12_000, 2, 8, 64
_IMAGES = flags.DEFINE_integer(
    *("images", IMAGES, "Training images."), lower_bound=BATCH, upper_bound=55_000
)
RATES = {
    "SGD, momentum 0.9": (0.1, 0.03),
    "Adam": (0.01, 0.003),
    "RMSprop": (0.003, 0.001),
}
# Columns of the table by way.
WAYS = {
    FLOAT: "float, test accuracy / %",
    "rotated": "default, points to float (p)",
    "correlated, clip 2.5": "paper's rule, points to float (p)",
}


def runs(seeds, images=IMAGES):
    """Returns the runs of the table, with runs of one shape after each other."""
    return [
        Run("small_cnn", optimizer, way, WORKERS, BATCH, images, EPOCHS, rate, seed)
        for optimizer, rates in RATES.items()
        for way in WAYS
        for rate in rates
        for seed in seeds
    ]


def table(rows):
    """Returns a Markdown table: accuracy of float gradients, and points of the others to it.

    Args:
        rows: dict from `Run` to its row.
    """
    first, *others = WAYS.values()
    lines = [f"| optimizer | rate | {first} | {' | '.join(others)} |", "|---|---|---|---|---|"]
    for optimizer, rates in RATES.items():
        for rate in rates:
            floats, *found = (_by_seed(rows, optimizer, rate, way) for way in WAYS)
            cells = [tables.mean([100 * row["accuracy"] for row in floats.values()], 2)]
            for by_seed in found:
                points, p = tables.difference(by_seed, floats, "accuracy")
                cells.append(f"{points} ({p})" if p else points)
            lines.append(f"| {optimizer} | {rate:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_seed(rows, *setting):
    return {
        run.seed: row
        for run, row in rows.items()
        if (run.optimizer, run.rate, run.gradients) == setting
    }


def main(argv):
    """Trains the missing runs and prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    from benchmarks.fidelity import training

    rows = Rows(pathlib.Path(_FILE.value))
    data = training.load("small_cnn", _RAW_DIR.value, _IMAGES.value)
    chosen = runs([int(seed) for seed in _SEEDS.value], _IMAGES.value)
    training.perform(chosen, rows, lambda net: data)
    print(f"\n{table(rows.of(_IMAGES.value, EPOCHS))}")
    return 0


if __name__ == "__main__":
    flags.mark_flag_as_required("raw_dir")
    app.run(main)

"""Runs and table of `benchmarks.fidelity.default`."""

from benchmarks.fidelity import tables
from benchmarks.fidelity.settings import FLOAT, Run

IMAGES, EPOCHS, WORKERS, BATCH = 12_000, 2, 8, 64
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
            floats, *found = (by_seed(rows, optimizer, rate, way) for way in WAYS)
            cells = [tables.mean([100 * row["accuracy"] for row in floats.values()], 2)]
            for others in found:
                points, p = tables.difference(others, floats, "accuracy")
                cells.append(f"{points} ({p})" if p else points)
            lines.append(f"| {optimizer} | {rate:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def by_seed(rows, *setting):
    """Returns {seed: row} of an optimizer, rate and way.

    Args:
        rows: dict from `Run` to its row.
        *setting: name in `RATES`, one of its rates, name in `WAYS`.
    """
    return {
        run.seed: row
        for run, row in rows.items()
        if (run.optimizer, run.rate, run.gradients) == setting
    }

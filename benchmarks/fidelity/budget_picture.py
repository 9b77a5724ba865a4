"""Draws test accuracy over bytes, from figures of `benchmarks.fidelity --tables=budgets`.

Run the module again when the figures change; the file is that of the finished runs:

    python -m benchmarks.fidelity.budget_picture --runs=benchmarks/results/fidelity.jsonl
"""

import functools
import pathlib
import statistics

from absl import app, flags
from matplotlib import pyplot as plt

from benchmarks.fidelity import rows as fidelity_rows
from benchmarks.fidelity import tables
from benchmarks.lib import pages, program

_RUNS = flags.DEFINE_string("runs", "benchmarks/results/fidelity.jsonl", "Finished runs.")
_PICTURES = flags.DEFINE_string("pictures", "docs/images", "Folder to write budgets_*.svg to.")

# Colours on light and dark pages, marker.
NETS = {"lenet": ("#0b62c4", "#58a6ff", "o"), "small_cnn": ("#b3471f", "#ef8354", "s")}


def draw(rows, page):
    """Returns a figure: a line per network of `NETS`, means over seeds; bars show the range."""
    points = tables.budget_points(rows)
    with pages.inks(page):
        figure, panel = plt.subplots(figsize=(8, 3.6))
        for net in filter(points.get, NETS):
            (*inks, marker), found = NETS[net], points[net]
            means = [100 * statistics.mean(accuracies) for _, accuracies in found]
            pairs = list(zip(means, (accuracies for _, accuracies in found), strict=True))
            spread = [
                [mean - 100 * min(accuracies) for mean, accuracies in pairs],
                [100 * max(accuracies) - mean for mean, accuracies in pairs],
            ]
            panel.errorbar(
                [fewer for fewer, _ in found],
                means,
                spread,
                color=inks[page == "dark"],
                label=net,
                marker=marker,
                markersize=5,
                linewidth=1.5,
                elinewidth=0.8,
            )
        panel.set_xscale("log")
        pages.in_decades(panel.xaxis)
        pages.frame(panel)
        panel.set_xlabel("times fewer bytes than float gradients")
        panel.set_ylabel("test accuracy / %")
        panel.legend(loc="lower left", frameon=False)
        figure.tight_layout()
        return figure


def main():
    """Writes the files for light and dark pages."""
    rows = fidelity_rows.Rows(pathlib.Path(_RUNS.value))
    if not tables.budget_points(rows):
        raise app.UsageError(
            "--runs must be a file with runs of --tables=budgets of benchmarks.fidelity. Received:"
            f" {_RUNS.value}"
        )
    pages.write(functools.partial(draw, rows), _PICTURES.value, "budgets")


if __name__ == "__main__":
    program.run(main)

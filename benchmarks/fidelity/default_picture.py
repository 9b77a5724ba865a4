"""Draws the accuracy of the default and of the paper's rule to that of float gradients."""

import functools
import math
import statistics

from matplotlib import pyplot as plt

from benchmarks.fidelity import default_tables
from benchmarks.fidelity.settings import FLOAT
from benchmarks.lib import pages

# Name, colours on light and dark pages, marker, place beside the row.
WAYS = {
    "rotated": ("default", "#0b62c4", "#58a6ff", "o", -0.12),
    "correlated, clip 2.5": ("paper's rule, rotate=False", "#b3471f", "#ef8354", "s", 0.12),
}


def points(rows, way):
    """Returns {(cell, rate): (mean difference to float, its standard error)} in points.

    Only cells that have all of `WAYS`, with several common seeds.
    """
    found = {}
    for cell in default_tables.CELLS:
        for rate in cell.rates if WAYS.keys() <= {*cell.ways} else ():
            floats, others = (default_tables.by_seed(rows, cell, rate, w) for w in (FLOAT, way))
            seeds = floats.keys() & others.keys()
            gains = [100 * (others[s]["accuracy"] - floats[s]["accuracy"]) for s in seeds]
            if len(gains) > 1:
                error = statistics.stdev(gains) / math.sqrt(len(gains))
                found[cell, rate] = statistics.mean(gains), error
    return found


def draw(rows, page):
    """Returns a figure: a row for each optimizer and rate, a mark for each way."""
    with pages.inks(page) as ink:
        figure, panel = plt.subplots(figsize=(5, 3.8))
        for way, (label, *inks, marker, beside) in WAYS.items():
            found = points(rows, way)
            panel.errorbar(
                [mean for mean, _ in found.values()],
                [place + beside for place in range(len(found))],
                xerr=[error for _, error in found.values()],
                color=inks[page == "dark"],
                label=label,
                marker=marker,
                markersize=6,
                linestyle="none",
                elinewidth=1.5,
            )
            panel.set_yticks(
                range(len(found)),
                [f"{cell.optimizer.split(',')[0]}, {rate:g}" for cell, rate in found],
            )
        panel.axvline(0, color=ink, linewidth=1)
        panel.invert_yaxis()
        pages.frame(panel, "x")
        panel.set_xlabel("test accuracy, points to float gradients")
        figure.legend(ncols=2, loc="lower center", frameon=False)
        figure.tight_layout(rect=(0, 0.08, 1, 1))
        return figure


def write(rows, folder):
    """Writes accuracy_light.svg and accuracy_dark.svg to a folder."""
    pages.write(functools.partial(draw, rows), folder, "accuracy")

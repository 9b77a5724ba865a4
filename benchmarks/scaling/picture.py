"""Draws the expected time of a step over the number of hosts, for light and dark pages."""

import functools

from matplotlib import pyplot as plt

from benchmarks.lib import pages
from benchmarks.scaling import tables

# Colours on light and dark pages, width of the line, marker.
MODES = {
    "float32": ("#8a6d00", "#d9b23c", 1.5, "s"),
    "ternary": ("#0b62c4", "#58a6ff", 3.0, "o"),
    "bidirectional": ("#2e7d5b", "#6cc5a0", 1.5, "v"),
}


def draw(rows, page):
    """Returns a figure of expected steps, with crosses at the steps that were measured."""
    with pages.inks(page) as ink:
        figure, panel = plt.subplots(figsize=(5, 3.6))
        for mode, (*inks, width, marker) in MODES.items():
            found = tables.predicted(rows, mode)
            panel.plot(
                list(found),
                list(found.values()),
                color=inks[page == "dark"],
                label=mode,
                linewidth=width,
                marker=marker,
                markersize=5,
            )
        measured = tables.checked(rows)
        panel.plot(
            [row["hosts"] for row in measured],
            [row["milliseconds"] for row in measured],
            color=ink,
            label="measured",
            linestyle="none",
            marker="x",
            zorder=5,
        )
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.minorticks_off()
        pages.in_decades(panel.yaxis)
        hosts = list(tables.predicted(rows, "float32"))
        panel.set_xticks(hosts, [f"{count}" for count in hosts])
        pages.frame(panel)
        panel.set_xlabel("hosts")
        panel.set_ylabel("one step / ms")
        figure.legend(ncols=2, loc="lower center", frameon=False)
        figure.tight_layout(rect=(0, 0.14, 1, 1))
        return figure


def write(rows, folder):
    """Writes scale_light.svg and scale_dark.svg to a folder."""
    pages.write(functools.partial(draw, rows), folder, "scale")

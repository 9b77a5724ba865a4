"""Draws the expected time of a step over the number of hosts, from figures of `benchmarks.scaling`.

Run the module again when the figures change:

    python -m benchmarks.scaling.picture --json=benchmarks/results/scaling.json
"""

import functools
import json
import pathlib

from absl import app, flags
from matplotlib import pyplot as plt

from benchmarks.lib import pages

_JSON = flags.DEFINE_string("json", "benchmarks/results/scaling.json", "File with the figures.")
_OUTPUT = flags.DEFINE_string("output", "docs/images", "Folder to write scale_*.svg to.")

# Colour on light pages, colour on dark pages, width of the line, marker.
MODES = {
    "float32": ("#8a6d00", "#d9b23c", 1.5, "s"),
    "ternary": ("#0b62c4", "#58a6ff", 3.0, "o"),
    "bidirectional": ("#2e7d5b", "#6cc5a0", 1.5, "v"),
}


def draw(figures, page):
    """Returns a figure of expected steps, with crosses at the steps that were measured.

    Args:
        figures: content of the file.
        page: "light" or "dark".
    """
    with pages.inks(page) as ink:
        figure, panel = plt.subplots(figsize=(5, 3.6))
        expected = figures["expected"]
        for mode, (*inks, width, marker) in MODES.items():
            colour = inks[page == "dark"]
            panel.plot(
                [row["workers"] for row in expected],
                [row[mode] for row in expected],
                color=colour,
                label=mode,
                linewidth=width,
                marker=marker,
                markersize=5,
            )
        measured = [row for row in figures["checks"] if row["gradients"] in MODES]
        panel.plot(
            [row["hosts"] for row in measured],
            [row["measured"] for row in measured],
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
        workers = [row["workers"] for row in expected]
        panel.set_xticks(workers, [f"{count}" for count in workers])
        pages.frame(panel)
        panel.set_xlabel("hosts")
        panel.set_ylabel("one step / ms")
        figure.legend(ncols=2, loc="lower center", frameon=False)
        figure.tight_layout(rect=(0, 0.14, 1, 1))
        return figure


def main(argv):
    """Writes a file for light pages and a file for dark pages."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    figures = json.loads(pathlib.Path(_JSON.value).read_text())
    pages.write(functools.partial(draw, figures), _OUTPUT.value, "scale")


if __name__ == "__main__":
    app.run(main)

"""Draws the seconds until a run went on after incidents, for light and dark pages."""

import functools

from matplotlib import pyplot as plt

from benchmarks.lib import pages

# On light and dark pages.
COLOURS = ("#0b62c4", "#58a6ff")


def draw(rows, page):
    """Returns a figure: for each kind of incident the median, and a line to the longest time."""
    known = [row for row in rows if "median_seconds" in row]
    medians = [row["median_seconds"] for row in known]
    longest = [row["longest_seconds"] for row in known]
    with pages.inks(page):
        figure, panel = plt.subplots(figsize=(5, 0.9 + 0.3 * len(known)))
        panel.errorbar(
            medians,
            range(len(known)),
            xerr=[[0] * len(known), [b - a for a, b in zip(medians, longest, strict=True)]],
            color=COLOURS[page == "dark"],
            label="median, and line to the longest",
            marker="o",
            markersize=6,
            linestyle="none",
            elinewidth=2,
        )
        names = [f"{row['incident'].replace('_', ' ')} ({row['count']})" for row in known]
        panel.set_yticks(range(len(known)), names)
        panel.set_ylim(len(known) - 0.5, -0.5)
        panel.set_xlim(left=-2)
        pages.frame(panel, "x")
        panel.set_xlabel("seconds until the others went on")
        figure.tight_layout()
        return figure


def write(rows, folder):
    """Writes incidents_light.svg and incidents_dark.svg to a folder."""
    pages.write(functools.partial(draw, rows), folder, "incidents")

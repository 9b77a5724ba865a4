"""Draws the seconds until a run went on after each incident, for light and dark pages."""

import functools

from matplotlib import pyplot as plt

from benchmarks.chaos import tables
from benchmarks.lib import pages

# On light pages, on dark pages.
COLOURS = ("#0b62c4", "#58a6ff")


def draw(incidents, page):
    """Returns a figure: a row for each kind of incident, a mark for each incident.

    Args:
        incidents: list of (names, seconds, seconds until all trained together), see `chaos`.
        page: "light" or "dark".
    """
    found = tables.by_kind(incidents)
    with pages.inks(page):
        figure, panel = plt.subplots(figsize=(5, 0.8 + 0.32 * len(found)))
        for place, seconds in enumerate(found.values()):
            known = [own for own, _ in seconds if own is not None]
            panel.plot(
                known,
                [place] * len(known),
                color=COLOURS[page == "dark"],
                marker="o",
                markersize=6,
                linestyle="none",
                alpha=0.7,
            )
        panel.set_yticks(range(len(found)), [name.replace("_", " ") for name in found])
        panel.set_ylim(len(found) - 0.5, -0.5)
        panel.set_xlim(left=-1)
        pages.frame(panel, "x")
        panel.set_xlabel("seconds until the run went on")
        figure.tight_layout()
        return figure


def write(incidents, folder):
    """Writes incidents_light.svg and incidents_dark.svg to a folder."""
    pages.write(functools.partial(draw, incidents), folder, "incidents")

"""Draws the time to an accuracy over the rate of the links, for light and dark pages."""

import functools

from matplotlib import pyplot as plt

from benchmarks.lib import pages
from benchmarks.time_to_accuracy import tables

HOSTS = 2
# Colours on light and dark pages, width of the line, marker.
MODES = {
    "ddp_float32": ("#8a6d00", "#d9b23c", 1.5, "s"),
    "ddp_fp16": ("#b3471f", "#ef8354", 1.5, "D"),
    "ddp_powersgd_4": ("#7b3fa0", "#c792ea", 1.5, "^"),
    "post_local_sgd_32": ("#2e7d5b", "#6cc5a0", 1.5, "P"),
    "torchft_diloco_32": ("#6e7781", "#8b949e", 1.5, "x"),
    "ternary": ("#0b62c4", "#58a6ff", 3.0, "o"),
    "local_4_0.3_bits": ("#0b62c4", "#58a6ff", 3.0, "v"),
    "local_8_0.1_bits": ("#0b62c4", "#58a6ff", 3.0, "s"),
}


def draw(rows, accuracy, page):
    """Returns a figure for 2 hosts.

    Omits modes that did not reach the accuracy, and links without a timed step.
    """
    with pages.inks(page):
        figure, panel = plt.subplots(figsize=(5, 5))
        links = tables.measured_links(rows, HOSTS)
        for mode, (*inks, width, marker) in MODES.items():
            found = [tables.seconds_to(rows, HOSTS, link, mode, accuracy) for link in links]
            places = [place for place, seconds in enumerate(found) if seconds is not None]
            if places:
                panel.plot(
                    places,
                    [found[place] for place in places],
                    color=inks[page == "dark"],
                    label=tables.NAMES[mode],
                    linewidth=width,
                    marker=marker,
                    markersize=5,
                )
        panel.set_xticks(range(len(links)), [tables.LINKS[link] for link in links])
        panel.set_yscale("log")
        pages.in_decades(panel.yaxis)
        pages.frame(panel)
        panel.set_ylabel(f"time to {100 * accuracy:g} % / s")
        figure.legend(ncols=2, loc="lower center", frameon=False, fontsize=8, columnspacing=1)
        figure.tight_layout(rect=(0, 0.2, 1, 1))
        return figure


def write(rows, accuracy, folder):
    """Writes time_to_accuracy_light.svg and ..._dark.svg to a folder."""
    pages.write(functools.partial(draw, rows, accuracy), folder, "time_to_accuracy")

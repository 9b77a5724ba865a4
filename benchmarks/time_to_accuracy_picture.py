"""Draws the time to an accuracy over the rate of the links, for light and dark pages."""

import matplotlib

from benchmarks import time_to_accuracy_tables as tables

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 - after the choice of what draws
from matplotlib import ticker  # noqa: E402

HOSTS = 2
# Colour on light and on dark pages, width of the line, marker.
MODES = {
    "ddp_float32": ("#8a6d00", "#d9b23c", 1.5, "s"),
    "ddp_fp16": ("#b3471f", "#ef8354", 1.5, "D"),
    "ddp_powersgd_1": ("#7b3fa0", "#c792ea", 1.5, "^"),
    "post_local_sgd_8": ("#2e7d5b", "#6cc5a0", 1.5, "P"),
    "torch_diloco_32": ("#6e7781", "#8b949e", 1.5, "x"),
    "ternary": ("#0b62c4", "#58a6ff", 1.5, "o"),
    "sparse": ("#0b62c4", "#58a6ff", 1.5, "v"),
    "local_32": ("#0b62c4", "#58a6ff", 3.0, "o"),
}
PAGES = {"light": ("#1f2328", "#d0d7de"), "dark": ("#e6edf3", "#3d444d")}


def draw(rows, accuracy, page):
    """A figure, of 2 hosts; modes that did not reach the accuracy are left out.

    Args:
        rows: list of dicts, see `time_to_accuracy_tables`.
        accuracy: in [0, 1].
        page: "light" or "dark", the page that it is for; the background is transparent.
    """
    ink, grid = PAGES[page]
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
    with plt.rc_context({**colours, "axes.edgecolor": grid, "font.size": 10}):
        figure, panel = plt.subplots(figsize=(8, 4.4))
        for mode, (*inks, width, marker) in MODES.items():
            seconds = {
                tables.LINKS[link]: tables.seconds_to(rows, HOSTS, link, mode, accuracy)
                for link in tables.measured_links(rows, HOSTS)
            }
            if None not in seconds.values():
                panel.plot(
                    list(seconds),
                    list(seconds.values()),
                    color=inks[page == "dark"],
                    label=tables.NAMES[mode],
                    linewidth=width,
                    marker=marker,
                    markersize=5,
                )
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panel.yaxis.set_minor_locator(ticker.NullLocator())
        panel.grid(axis="y", color=grid, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_ylabel(f"time to {100 * accuracy:g} % / s")
        figure.legend(ncols=2, loc="lower center", frameon=False)
        figure.tight_layout(rect=(0, 0.24, 1, 1))
        return figure


def write(rows, accuracy, folder):
    """Writes time_to_accuracy_light.svg and ..._dark.svg to a folder."""
    # Text stays text, and equal figures give equal files.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "terngrad_tf"}):
        for page in PAGES:
            figure = draw(rows, accuracy, page)
            path = folder / f"time_to_accuracy_{page}.svg"
            figure.savefig(path, transparent=True, metadata={"Date": None})
            plt.close(figure)

"""Common parts of the figures' pictures: colours for light and dark pages, axes, files."""

import contextlib
import pathlib

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 - after the choice of the backend
from matplotlib import ticker  # noqa: E402

# Ink and grid. The background is transparent.
PAGES = {"light": ("#1f2328", "#d0d7de"), "dark": ("#e6edf3", "#3d444d")}


@contextlib.contextmanager
def inks(page):
    """Sets the colours of a page, "light" or "dark", in this context; yields its ink."""
    ink, grid = PAGES[page]
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
    with plt.rc_context({**colours, "axes.edgecolor": grid, "grid.color": grid, "font.size": 10}):
        yield ink


def frame(panel, axis="y"):
    """Keeps the two axes of a panel's frame, and draws grid lines from one of them."""
    panel.grid(axis=axis, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def in_decades(axis):
    """Sets ticks at 1, 2, 5, 10, 20, ... of a logarithmic axis, as plain numbers."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_minor_locator(ticker.NullLocator())


def write(draw, folder, name):
    """Writes NAME_light.svg and NAME_dark.svg to a folder."""
    # Text stays text, and equal figures give equal files.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "terngrad_tf"}):
        for page in PAGES:
            figure = draw(page)
            path = pathlib.Path(folder) / f"{name}_{page}.svg"
            figure.savefig(path, transparent=True, metadata={"Date": None})
            plt.close(figure)

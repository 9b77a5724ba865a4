"""Draws step time over link rate, from figures of `benchmarks.cluster`, for light and dark pages.

Run the module again when the figures change:

    python -m benchmarks.cluster.picture --json=benchmarks/results/cluster.json --output=docs/images
"""

import functools
import json
import pathlib

from absl import flags
from matplotlib import pyplot as plt

from benchmarks.lib import pages, program

_JSON = flags.DEFINE_string("json", "benchmarks/results/cluster.json", "File with the figures.")
_OUTPUT = flags.DEFINE_string("output", "docs/images", "Folder to write step_time_*.svg to.")

HOSTS = 2
RATES = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s", "none": "any rate"}
MODELS = {"digits": "2.1 million gradients", "alexnet": "61 million gradients"}
# Name, colours on light and dark pages, width of the line.
MODES = {
    "ddp_float32": ("PyTorch DDP, float32", "#8a6d00", "#d9b23c", 1.5),
    "ddp_fp16": ("PyTorch DDP, fp16 hook", "#b3471f", "#ef8354", 1.5),
    "ddp_powersgd": ("PyTorch DDP, PowerSGD", "#7b3fa0", "#c792ea", 1.5),
    "ternary": ("terngrad_tf, ternary", "#0b62c4", "#58a6ff", 3.0),
    "no_exchange": ("nothing sent", "#6e7781", "#8b949e", 1.5),
}
MARKERS = "sD^ox"


def draw(rows, page):
    """Returns a figure of two panels, one per model."""
    with pages.inks(page) as ink:
        # Narrow, for telephones.
        figure, panels = plt.subplots(2, 1, figsize=(5, 6.2))
        for panel, (model, title) in zip(panels, MODELS.items(), strict=True):
            for marker, (mode, (label, *inks, width)) in zip(MARKERS, MODES.items(), strict=True):
                found = {
                    row["rate"]: row["milliseconds"]
                    for row in rows
                    if (row["model"], row["hosts"], row["mode"]) == (model, HOSTS, mode)
                }
                panel.plot(
                    list(RATES.values()),
                    [found[rate] for rate in RATES],
                    color=inks[page == "dark"],
                    label=label,
                    linewidth=width,
                    marker=marker,
                    markersize=5,
                )
            panel.set_title(title, fontsize=10, color=ink)
            panel.set_ylabel("one step / ms")
            panel.set_yscale("log")
            pages.in_decades(panel.yaxis)
            pages.frame(panel)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, ncols=2, loc="lower center", frameon=False)
        figure.tight_layout(rect=(0, 0.12, 1, 1))
        return figure


def main():
    """Writes the files for light and dark pages."""
    rows = json.loads(pathlib.Path(_JSON.value).read_text())["rows"]
    pages.write(functools.partial(draw, rows), _OUTPUT.value, "step_time")


if __name__ == "__main__":
    program.run(main)

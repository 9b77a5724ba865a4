"""Results, a table and a plot of finished runs, read from their TensorBoard logs."""

import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from slim_data.common.extras import import_extra
from terngrad_tf.common import tags
from terngrad_tf.common.files import atomic_write

# Bits per second.
LINKS = {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9}


def read_scalars(folder: str | os.PathLike) -> dict[str, dict[int, float]]:
    """Reads scalars of TensorBoard logs: values by step, ascending, by tag.

    Values that a later start of the run repeats, or another run in its folder, do not count.
    """
    accumulator = import_extra("tensorboard.backend.event_processing.plugin_event_accumulator")
    tensors = accumulator.TENSORS
    # Keeps all of a tag's values, in the order of writing, up to where a run starts again.
    events = accumulator.EventAccumulator(str(folder), size_guidance={tensors: 0})
    logger = logging.getLogger("tensorboard")
    logger.addFilter(_is_no_restart)
    try:
        events.Reload()
    finally:
        logger.removeFilter(_is_no_restart)
    scalars = {}
    for tag in events.Tags()[tensors]:
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            values = {e.step: float(tf.make_ndarray(e.tensor_proto)) for e in events.Tensors(tag)}
            # A run before in the folder may have written the tag alone.
            scalars |= {tag: dict(sorted(values.items()))} if values else {}
    return scalars


def _is_no_restart(record):
    return "TensorFlow restart" not in record.getMessage()


def training_seconds(
    scalars: Mapping[str, Mapping[int, float]], batch_size: int, steps_before: int = 0
) -> float:
    """Returns the training time in seconds, summed over the log lines."""
    seconds, before = 0.0, steps_before
    for step, speed in scalars.get(tags.EXAMPLES_PER_SECOND, {}).items():
        seconds += (step - before) * batch_size / speed
        before = step
    return seconds


def seconds_on_link(
    scalars: Mapping[str, Mapping[int, float]], batch_size: int, bits_per_second: float
) -> dict[float, float]:
    """Returns {seconds: loss} of a run whose bytes travel over a link; {} without speeds or bytes.

    The steps' time is measured, without building the first; the bytes' time is added. The run must
    continue no other.
    """
    speeds, received = scalars.get(tags.EXAMPLES_PER_SECOND), scalars.get(tags.RECEIVED_BYTES)
    if not speeds or not received or not all(speed > 0 for speed in speeds.values()):
        return {}
    num_bytes = sum(received.values()) / len(received)
    # The first line's time is mostly that of building the step.
    usual = dict(list(speeds.items())[1:]) or speeds
    found, before, seconds = {0: 0.0}, 0, 0.0
    for step, speed in usual.items():
        seconds += (step - before) * (batch_size / speed + 8 * num_bytes / bits_per_second)
        found[step], before = seconds, step
    losses = scalars.get(tags.CROSS_ENTROPY, {})
    times = np.interp(list(losses), list(found), list(found.values()))
    return dict(zip(times.tolist(), losses.values(), strict=True))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a table; columns are as wide as their widest cell, the first left-aligned.

    Example:
        >>> print(table(["run", "loss"], [["float", "0.5"]]))
        run    loss
        float   0.5
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [header, *rows]
    )


def plot(
    path: pathlib.Path,
    panels: Mapping[str, tuple[str, str, Mapping[str, Mapping[Any, float]]]],
    *,
    x_labels: Mapping[str, str] | None = None,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
    errors: Mapping[str, Mapping[Any, float]] | None = None,
) -> None:
    """Draws curves side by side as a PNG; replaces the file once complete.

    Args:
        panels: by title: label of the y axis, its scale "linear" or "log", and values by step, by
            curve's label.
        x_labels: label of the x axis, by panel's title. Default: "step".
        styles: options of matplotlib's lines, by curve's label.
        errors: length of the error bar by step, by curve's label.
    """
    figure = import_extra("matplotlib.figure").Figure(
        figsize=(6 * len(panels), 4), layout="constrained"
    )
    for axes, (title, (label, scale, curves)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for name, curve in curves.items():
            style = {"marker": ".", "label": name, **(styles or {}).get(name, {})}
            bars = (errors or {}).get(name)
            lengths = [bars[step] for step in curve] if bars else None
            axes.errorbar(list(curve), list(curve.values()), lengths, capsize=2, **style)
        x_label = (x_labels or {}).get(title, "step")
        axes.set(title=title, xlabel=x_label, ylabel=label, yscale=scale)
        axes.grid(alpha=0.3)
        axes.legend()
    with atomic_write(pathlib.Path(path)) as beside:
        figure.savefig(beside, format="png", dpi=120)

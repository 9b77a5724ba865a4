"""Charts of a report for plotly: dicts of `data` and `layout`, without colours."""

import html
import math
from collections.abc import Mapping
from typing import Any, TypeVar

_Key = TypeVar("_Key")

# Suit light and dark pages.
COLOURS = (
    *("#1f77b4", "#e8740c", "#2ca02c", "#d62728", "#9467bd"),
    *("#17a2b8", "#b8860b", "#8c564b", "#e377c2", "#7f7f7f"),
)
_DASHES = ("solid", "dash", "dot", "dashdot")
# Most points of a curve and bars of a chart; more are not visible.
_MAX_POINTS = 1000
_MAX_MARKED = 30
_MAX_BARS = 60
# Pixels; the page may be as narrow as a phone.
_PLOT_HEIGHT = 260
_AXES_HEIGHT = 80
_LEGEND_LINE = 20
# Beyond this number of lines, names show on hover only.
_MAX_LEGEND = 12


def curves(
    labels: tuple[str, str],
    series: Mapping[str, Mapping[Any, float]],
    *,
    log: bool = False,
    lines: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, Any]:
    """Draws lines over steps, with markers if there are few points.

    Args:
        series: values by step, by name of a line.
        log: whether the y axis is logarithmic if all values are positive.
        lines: numbers of a colour and of dashes, by name of a line, so that a run has one colour in
            all charts. Default: a colour for each line.
    """
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers" if len(curve) <= _MAX_MARKED else "lines",
            "name": html.escape(name),
            **_line((lines or {}).get(name)),
            "x": (steps := thinned(curve, _MAX_POINTS)),
            "y": [_finite(curve[step]) for step in steps],
        }
        for name, curve in series.items()
        if curve
    ]
    values = [value for line in data for value in line["y"] if value is not None]
    layout = _layout(labels, data)
    if log and values and min(values) > 0:
        layout["yaxis"]["type"] = "log"
    return {"data": data, "layout": layout}


def bars(
    labels: tuple[str, str],
    series: Mapping[str, Mapping[Any, float]],
    *,
    stacked: bool = False,
    sideways: bool = False,
) -> dict[str, Any]:
    """Draws bars, stacked or side by side.

    Args:
        labels: labels of the axes for upright bars.
        series: lengths by place, by name of a kind of bars.
        sideways: whether bars are horizontal, with their places' names on the left.
    """
    x, y = ("y", "x") if sideways else ("x", "y")
    data = []
    for name, lengths in series.items():
        places = list(lengths) if sideways else thinned(lengths, _MAX_BARS)
        bar = {
            "type": "bar",
            "name": html.escape(name),
            "orientation": "h" if sideways else "v",
            x: [html.escape(place) if isinstance(place, str) else place for place in places],
            y: [_finite(lengths[place]) for place in places],
        }
        data.append(bar)
    layout = _layout(labels[::-1] if sideways else labels, data)
    layout["barmode"] = "stack" if stacked else "group"
    if sideways:
        num_places = max((len(bar["y"]) for bar in data), default=0)
        layout["yaxis"] |= {"type": "category", "autorange": "reversed"}
        layout["height"] += 22 * num_places * (1 if stacked else len(data)) - _PLOT_HEIGHT
    return {"data": data, "layout": layout}


def thinned(curve: Mapping[_Key, Any], most: int) -> list[_Key]:
    """Returns at most `most` of a dict's keys, evenly spaced, including the last.

    Example:
        >>> thinned(dict.fromkeys(range(10)), 3)
        [3, 6, 9]
    """
    keys = list(curve)
    every = max(1, math.ceil(len(keys) / most))
    return keys[(len(keys) - 1) % every :: every]


def _layout(labels, data):
    x, y = ({"title": {"text": html.escape(label)}} for label in labels)
    has_legend = 1 < len(data) <= _MAX_LEGEND
    height = _PLOT_HEIGHT + _AXES_HEIGHT + (_LEGEND_LINE * len(data) if has_legend else 0)
    return {"xaxis": x, "yaxis": y, "height": height, "showlegend": has_legend}


def _line(numbers):
    if numbers is None:
        return {}
    colour, dashes = numbers
    line = {"color": COLOURS[colour % len(COLOURS)], "dash": _DASHES[dashes % len(_DASHES)]}
    return {"line": line}


def _finite(value):
    return value if math.isfinite(value) else None

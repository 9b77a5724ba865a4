"""Formats values of runs for reports."""

from collections.abc import Callable, Mapping, Sequence
from xml.etree import ElementTree

from terngrad_tf.reports.page import table
from terngrad_tf.reports.reading import RunData

# Label of an axis.
STEP = "step"


def shown(value: object) -> str:
    """Formats numbers with four digits or as integers, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10**4 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def whole(value: float | None) -> str:
    """Formats a number without decimals, None as a dash."""
    return "–" if value is None else f"{value:,.0f}"


def last(curve: Mapping[int, float]) -> float | None:
    """Returns the value at the last step of a curve, or None."""
    return curve[max(curve)] if curve else None


def by_run(
    runs: Sequence[RunData], rows: Mapping[str, Callable[[RunData], str]]
) -> ElementTree.Element:
    """Creates a table with one column per run; `rows` maps titles to functions of a run."""
    return table(
        ["", *(run.name for run in runs)],
        [[title, *(text(run) for run in runs)] for title, text in rows.items()],
    )


def line_name(runs: Sequence[RunData], run: RunData, name: str) -> str:
    """Returns the name of a chart's line, with the run's name if there are several."""
    return name if len(runs) == 1 else run.name if not name else f"{run.name}: {name}"


def scaled(value: float | None, factor: float, unit: str = "") -> str:
    """Formats a number times a factor, with its unit; None as a dash."""
    return shown(None) if value is None else f"{shown(float(factor * value))}{unit}"

"""How a report tells values of runs."""

from collections.abc import Callable, Mapping, Sequence
from xml.etree import ElementTree

from terngrad_tf.training.reports.page import table
from terngrad_tf.training.reports.reading import RunData

# Label of the axis of what goes over steps.
STEP = "step"


def shown(value: object) -> str:
    """Text of a value: numbers with four digits or whole, nothing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10**4 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def whole(value: float | None) -> str:
    """Text of a number without decimals; a dash for None."""
    return "–" if value is None else f"{value:,.0f}"


def last(curve: Mapping[int, float]) -> float | None:
    """Value at the last step of a curve; None where it is empty."""
    return curve[max(curve)] if curve else None


def by_run(
    runs: Sequence[RunData], rows: Mapping[str, Callable[[RunData], str]]
) -> ElementTree.Element:
    """A table with a column a run.

    Args:
        runs: the runs.
        rows: dict from a row's title to a function of a run to its text.
    """
    return table(
        ["", *(run.name for run in runs)],
        [[title, *(text(run) for run in runs)] for title, text in rows.items()],
    )


def line_name(runs: Sequence[RunData], run: RunData, name: str) -> str:
    """Name of a line of a chart: that of the run too, where there are several."""
    return name if len(runs) == 1 else run.name if not name else f"{run.name}: {name}"


def scaled(value: float | None, factor: float, unit: str = "") -> str:
    """Text of a number times a factor, with its unit behind; a dash for None."""
    return shown(None) if value is None else f"{shown(float(factor * value))}{unit}"

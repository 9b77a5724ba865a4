"""Table of the times of `benchmarks.recovery`."""

import collections
import statistics

from benchmarks.lib import markdown

# Measured values, and the digits to show.
FIGURES = {"others_seconds": 1, "together_seconds": 1, "repeated_steps": 0}
_TITLES = (
    "mode | killed | started again | repeats | the others' next step after, s"
    " | all together, from the start, s | finished steps done again"
)


def recoveries(rows):
    """Returns a Markdown table of medians, and of the smallest and largest values.

    Args:
        rows: list of dicts with "mode", "killed", "started" and `FIGURES`, one for each kill.
    """
    found = collections.defaultdict(list)
    for row in rows:
        found[row["mode"], row["killed"], row["started"]].append(row)
    lines = []
    for kind, own in found.items():
        cells = [_text([row[name] for row in own], digits) for name, digits in FIGURES.items()]
        lines.append([*kind, len(own), *cells])
    return markdown.table(_TITLES, lines)


def _text(values, digits):
    median, *ends = (f"{f(values):,.{digits}f}" for f in (statistics.median, min, max))
    return f"{median} ({ends[0]} to {ends[1]})"

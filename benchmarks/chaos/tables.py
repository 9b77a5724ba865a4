"""Summary and table of the incidents of `benchmarks.chaos`.

An incident is (names, seconds until the run continued, seconds from then until all workers trained
together); None if no worker may continue, or none leaves and joins.
"""

import collections
import statistics

from benchmarks.chaos import members
from benchmarks.lib import markdown

TWO = "two at once"
# Times: name in the rows, title in the table.
TIMES = {
    "seconds": "seconds until the others went on",
    "together_seconds": "until all were together, after that",
}


def summary(incidents):
    """Returns rows: "incident", "count", and median and longest of each time, if it is known."""
    found = collections.defaultdict(list)
    for names, *times in incidents:
        found[names[0] if len(names) == 1 else TWO].append(times)
    rows = []
    for kind in (*members.EVENTS, TWO):
        if kind in found:
            row = {"incident": kind, "count": len(found[kind])}
            for name, times in zip(TIMES, zip(*found[kind], strict=True), strict=True):
                if known := [seconds for seconds in times if seconds is not None]:
                    row[f"median_{name}"] = statistics.median(known)
                    row[f"longest_{name}"] = max(known)
            rows.append(row)
    return rows


def incidents(rows):
    """Returns a Markdown table."""
    if any("median_together_seconds" in row for row in rows):
        titles = TIMES
    else:
        titles = {"seconds": "seconds to the next saved step"}
    heads = " | ".join(f"{title}: median | longest" for title in titles.values())
    lines = []
    for row in rows:
        cells = [row["incident"], row["count"]]
        for name in titles:
            cells += [_text(row.get(f"{which}_{name}")) for which in ("median", "longest")]
        lines.append(cells)
    return markdown.table(f"incident | how often | {heads}", lines)


def _text(seconds):
    return "-" if seconds is None else f"{seconds:.1f}" if seconds else "0"

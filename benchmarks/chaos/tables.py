"""Table of the incidents of `benchmarks.chaos`."""

import collections
import statistics

from benchmarks.chaos import members

TWO = "two at once"


def by_kind(incidents):
    """Returns {kind: [(seconds, seconds until all trained together), ...]} of kinds that happened.

    Args:
        incidents: list of (names, seconds until the run went on, seconds from then until all
            trained together or None).
    """
    found = collections.defaultdict(list)
    for names, seconds, together in incidents:
        found[names[0] if len(names) == 1 else TWO].append((seconds, together))
    return {kind: found[kind] for kind in (*members.EVENTS, TWO) if kind in found}


def incidents(rows, come_and_go):
    """Returns a Markdown table of medians and longest times.

    Args:
        rows: incidents, see `by_kind`.
        come_and_go: True if workers leave and join.
    """
    titles = ["incident", "how often", "seconds to the next saved step: median", "longest"]
    titles += ["all together again: median", "longest"] if come_and_go else []
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for kind, found in by_kind(rows).items():
        own, together = zip(*found, strict=True)
        cells = [kind, str(len(found)), *_median_and_longest(own)]
        cells += _median_and_longest(together) if come_and_go else []
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _median_and_longest(seconds):
    known = [value for value in seconds if value is not None]
    return [f"{statistics.median(known):.1f}", f"{max(known):.1f}"] if known else ["-", "-"]

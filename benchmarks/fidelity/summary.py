"""Short tables of the fidelity study: what each way to exchange gradients costs against float.

    python -m benchmarks.fidelity.summary

prints the tables of docs/results/fidelity.md from the runs of the checkout,
benchmarks/results/fidelity.jsonl.
"""

import pathlib

from benchmarks.fidelity import rows as fidelity_rows
from benchmarks.fidelity import tables
from benchmarks.fidelity.settings import FLOAT
from benchmarks.lib import markdown

# Titles of the columns, which some row must have.
WAYS = {
    "correlated, clip 2.5": "ternary, clip 2.5",
    "correlated, clip 0": "ternary, no clipping",
    "correlated, auto": 'ternary, "auto"',
    "clip 2.5, sum rounded": "ternary, clip 2.5, sum rounded",
    "3-bit, auto": '3 bits, "auto"',
    "4-bit, auto": '4 bits, "auto"',
    "4-bit, clip 2.5": "4 bits, clip 2.5",
    "8-bit, auto": '8 bits, "auto"',
}


def tuned(rows, table):
    """Returns float accuracy and the differences to it as Markdown, a line per optimizer."""
    groups = tables.tuned_groups(rows, table)
    found = {}
    for key, name, runs in tables.by_optimizer(groups, table):
        cells = {run.gradients: groups[run] for run in runs}
        found[key, name] = cells[FLOAT], cells
    return _table(f"{tables.BY[table]} | optimizer", found)


def workers(rows):
    """Returns a line per network and number of workers as Markdown."""
    groups = tables.workers_groups(rows)
    found = {}
    for net, run, baseline in tables.by_net(groups):
        if run.gradients in WAYS:
            _, cells = found.setdefault((net, run.num_nodes), (baseline, {}))
            cells[run.gradients] = groups[run]
    return _table("network | workers", dict(sorted(found.items())))


def budgets(rows):
    """Returns a line per network and way with known bytes as Markdown."""
    lines = []
    groups = tables.budgets_groups(rows)
    for net, run, baseline in tables.by_net(groups):
        found = groups[run]
        fewer = f"{tables.times_fewer_bytes(found):.3g}"
        cells = [net, WAYS.get(run.gradients, run.gradients), fewer, tables.accuracy(found)]
        lines.append([*cells, tables.difference(found, baseline)])
    titles = "network | gradients | times fewer bytes | test accuracy / % | difference (p)"
    return markdown.table(titles, lines)


def of_page(rows):
    """Returns all tables of the page, in its order."""
    of_optimizers = [tuned(rows, table) for table in ("batches", "kinds")]
    return [*of_optimizers, workers(rows), tuned(rows, "precisions"), budgets(rows)]


def _table(first, found):
    """Returns Markdown of {cells below `first`: (float rows by seed, {way: rows by seed})}."""
    ways = [way for way in WAYS if any(way in cells for _, cells in found.values())]
    lines = [
        [
            *left,
            tables.accuracy(baseline),
            *(tables.difference(cells.get(way, {}), baseline) for way in ways),
        ]
        for left, (baseline, cells) in found.items()
    ]
    titles = [first, "float, test accuracy / %", *(WAYS[way] for way in ways)]
    return markdown.table(" | ".join(titles), lines)


def main():
    """Prints all tables of the page."""
    rows = fidelity_rows.Rows(pathlib.Path("benchmarks/results/fidelity.jsonl"))
    print("\n\n".join(of_page(rows)))


if __name__ == "__main__":
    main()

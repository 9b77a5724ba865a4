"""Markdown tables of the fidelity study."""

import collections
import dataclasses
import itertools
import statistics

from benchmarks.fidelity.settings import (
    FLOAT,
    GRADIENTS,
    KINDS,
    NETS,
    OF_BUDGETS,
    OF_PRECISIONS,
    OF_WORKERS,
    OPTIMIZERS,
    PRECISIONS,
    TUNING_SEED,
    WITH_BATCH_NORM,
)
from benchmarks.lib import markdown, means

TITLES = (
    "seeds | test accuracy / %, last weights | to float | p | moving average | to float | p |"
    " test loss, last weights | training loss"
)

# The field that groups each table's rows.
BY = {"kinds": "net", "batches": "batch_size", "precisions": "precision"}


def tuned(rows, table):
    """Returns a table by optimizer and gradients, at the sweep's rate."""
    groups = tuned_groups(rows, table)
    lines = []
    for key, name, runs in by_optimizer(groups, table):
        baseline = next((groups[run] for run in runs if run.gradients == FLOAT), {})
        for run in runs:
            first = [key, name, run.gradients, f"{run.rate:g}"]
            lines.append(_cells(first, groups[run], baseline))
    return markdown.table(f"{BY[table]} | optimizer | gradients | rate | {TITLES}", lines)


def tuned_groups(rows, table):
    """Returns {run with seed 0: {seed: row}} of the runs of `tuned`."""
    return _by_seed(rows, lambda run: _is_of(run, table) and run.seed != TUNING_SEED)


def rates(rows, table):
    """Returns the sweep: accuracy of the final weights by optimizer, gradients and rate."""
    sweep = [run for run in rows if _is_of(run, table) and run.seed == TUNING_SEED]
    lines = []
    for key, name, runs in by_optimizer(sweep, table):
        for gradients, own in itertools.groupby(runs, key=lambda run: run.gradients):
            in_order = sorted(own, key=lambda run: run.rate)
            texts = [f"{run.rate:g}: {100 * rows[run]['accuracy']:.2f}" for run in in_order]
            lines.append([key, name, gradients, ", ".join(texts)])
    title = "test accuracy / % of the last weights, by rate"
    return markdown.table(f"{BY[table]} | optimizer | gradients | {title}", lines)


def by_optimizer(runs, table):
    """Yields (value of the table's field, optimizer, their runs by gradients), in its order."""
    by = BY[table]
    order = [*KINDS, *PRECISIONS]
    ways = list(GRADIENTS)
    keys = {getattr(run, by) for run in runs}
    for key in sorted(keys, key=lambda key: order.index(key) if key in order else key):
        for name in OPTIMIZERS:
            own = [run for run in runs if (run.optimizer, getattr(run, by)) == (name, key)]
            if own:
                yield key, name, sorted(own, key=lambda run: ways.index(run.gradients))


def workers(rows):
    """Returns a table by network, gradients and number of workers."""
    groups = workers_groups(rows)
    lines = [
        _cells([net, run.gradients, _workers_text(run)], groups[run], baseline)
        for net, run, baseline in by_net(groups)
    ]
    return markdown.table(f"network | gradients | workers | {TITLES}", lines)


def workers_groups(rows):
    """Returns {run with seed 0: {seed: row}} of the runs of `workers`."""
    return _by_seed(rows, lambda run: run.batch_size == 128 and run.gradients in OF_WORKERS)


def budgets(rows):
    """Returns accuracy and bytes by network and number of workers."""
    groups = budgets_groups(rows)
    lines = []
    for net, run, baseline in by_net(groups):
        found = groups[run]
        first = [net, run.gradients, _workers_text(run), f"{times_fewer_bytes(found):.3g}"]
        lines.append(_cells(first, found, baseline))
    titles = f"network | gradients | workers | times fewer bytes | {TITLES}"
    return markdown.table(titles, lines)


def budget_points(rows):
    """Returns {network: [(times fewer bytes, final accuracies by seed), ...]}, ascending."""
    groups = budgets_groups(rows)
    points = collections.defaultdict(list)
    for net, run, _ in by_net(groups):
        found = groups[run]
        accuracies = [row["accuracy"] for row in found.values()]
        points[net].append((times_fewer_bytes(found), accuracies))
    return {net: sorted(found) for net, found in points.items()}


def budgets_groups(rows):
    """Returns {run with seed 0: {seed: row}} of the runs of `budgets`."""
    budgets = [run for run in rows if "bits_per_element" in GRADIENTS[run.gradients]]
    ran = {(run.net, run.num_nodes) for run in budgets}
    nets = {net for net, _ in ran}

    def belongs(run):
        if run.batch_size != 128 or run.gradients not in OF_BUDGETS:
            return False
        if run.gradients == FLOAT:
            return run.net in nets
        return (run.net, run.num_nodes) in ran and "compression" in rows[run]

    return _by_seed(rows, belongs)


def times_fewer_bytes(found):
    """Returns the factor of saved bytes, the mean over seeds."""
    return statistics.mean(row.get("compression", 1) for row in found.values())


def by_net(groups):
    """Yields a network, a run with seed 0, and the float gradients' rows by seed.

    With batch norm, the float gradients have the same number of workers.
    """
    for net in NETS:
        shapes = sorted(
            (run for run in groups if run.net == net),
            key=lambda run: (list(GRADIENTS).index(run.gradients), run.num_nodes),
        )
        floats = {run.num_nodes: groups[run] for run in shapes if run.gradients == FLOAT}
        for run in shapes:
            count = run.num_nodes if net in WITH_BATCH_NORM else 1
            yield net, run, floats.get(count, {})


def _workers_text(run):
    """Returns the number of workers, "any" if the number does not matter."""
    is_any = run.gradients == FLOAT and run.net not in WITH_BATCH_NORM
    return "any" if is_any else str(run.num_nodes)


def _is_of(run, table):
    """Returns True if a run belongs to a table; the table of workers has batches of 128."""
    if run.batch_size == 128:
        return False
    # Other tables have the small CNN, batches of 256 and float32, except for the grouped field.
    usual = {"net": "small_cnn", "batch_size": 256, "precision": PRECISIONS[0]}
    if table == "kinds":
        usual["net"] = run.net if run.net in KINDS else None
    else:
        usual.pop(BY[table])
    optimizers = OF_PRECISIONS if table == "precisions" else OPTIMIZERS
    return run.optimizer in optimizers and all(getattr(run, n) == v for n, v in usual.items())


def _by_seed(rows, belongs):
    """Returns {run with seed 0: {seed: row}} of a table's runs."""
    groups = collections.defaultdict(dict)
    for run, row in rows.items():
        if belongs(run):
            groups[dataclasses.replace(run, seed=0)][run.seed] = row
    return groups


def _cells(first, found, baseline):
    """Returns the cells of a way's rows and its float baseline, dicts by seed."""
    cells = [*first, len(found)]
    for name in ("accuracy", "average_accuracy"):
        cells.append(accuracy(found, name))
        cells += means.difference(found, baseline, name)
    for name in ("loss", "training_loss"):
        cells.append(means.with_deviation([row[name] for row in found.values()], 4))
    return cells


def accuracy(found, name="accuracy"):
    """Returns the mean accuracy of rows by seed in percent."""
    return means.with_deviation([100 * row[name] for row in found.values()], 2)


def difference(found, baseline):
    """Returns the points of rows by seed to a baseline and p, such as "-0.10 (0.020)"."""
    points, p = means.difference(found, baseline, "accuracy")
    return f"{points} ({p})" if p else points

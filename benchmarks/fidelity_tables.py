"""The Markdown tables of the study of fidelity."""

import collections
import dataclasses
import statistics

import scipy.stats

from benchmarks.fidelity_settings import FLOAT, GRADIENTS, NETS, OPTIMIZERS, TUNING_SEED

TITLES = (
    "seeds | test accuracy / %, last weights | to float | p | moving average | to float | p |"
    " test loss, last weights | training loss"
)


def optimizers(rows):
    """By optimizer and gradients, at the rate that the sweep chose for each.

    Args:
        rows: dict from `Run` to its row.
    """
    groups = _by_seed(rows, lambda run: _is_optimizers(run) and run.seed != TUNING_SEED)
    lines = _head("optimizer | gradients | rate")
    for name in OPTIMIZERS:
        shapes = [run for run in groups if run.optimizer == name]
        baseline = next((groups[run] for run in shapes if run.gradients == FLOAT), {})
        for gradients in GRADIENTS:
            for run in shapes:
                if run.gradients == gradients:
                    lines.append(_line([name, gradients, f"{run.rate:g}"], groups[run], baseline))
    return "\n".join(lines)


def rates(rows):
    """The sweep: test accuracy of the last weights by optimizer, gradients and rate, one seed.

    Args:
        rows: dict from `Run` to its row.
    """
    cells = collections.defaultdict(dict)
    for run, row in rows.items():
        if _is_optimizers(run) and run.seed == TUNING_SEED:
            cells[run.optimizer, run.gradients][run.rate] = row
    lines = [
        "| optimizer | gradients | test accuracy / % of the last weights, by rate |",
        "|---|---|---|",
    ]
    for name in OPTIMIZERS:
        for gradients in GRADIENTS:
            found = sorted(cells[name, gradients].items())
            if found:
                texts = [f"{rate:g}: {100 * row['accuracy']:.2f}" for rate, row in found]
                lines.append(f"| {name} | {gradients} | {', '.join(texts)} |")
    return "\n".join(lines)


def workers(rows):
    """By network, gradients and number of workers.

    Args:
        rows: dict from `Run` to its row.
    """
    groups = _by_seed(rows, lambda run: not _is_optimizers(run))
    lines = _head("network | gradients | workers")
    for net in NETS:
        shapes = sorted(
            (run for run in groups if run.net == net),
            key=lambda run: (list(GRADIENTS).index(run.gradients), run.num_nodes),
        )
        baseline = next((groups[run] for run in shapes if run.gradients == FLOAT), {})
        for run in shapes:
            count = "any" if run.gradients == FLOAT else str(run.num_nodes)
            lines.append(_line([net, run.gradients, count], groups[run], baseline))
    return "\n".join(lines)


def _is_optimizers(run):
    """Whether a run belongs to the table of optimizers: the tables differ in the batch."""
    return run.batch_size == 256


def _by_seed(rows, belongs):
    """{run of seed 0: {seed: row}} of the runs that belong to a table."""
    groups = collections.defaultdict(dict)
    for run, row in rows.items():
        if belongs(run):
            groups[dataclasses.replace(run, seed=0)][run.seed] = row
    return groups


def _head(first):
    titles = f"{first} | {TITLES}"
    return [f"| {titles} |", "|" + "---|" * (titles.count("|") + 1)]


def _line(first, found, baseline):
    cells = [*first, str(len(found))]
    for name in ("accuracy", "average_accuracy"):
        cells.append(_mean([100 * row[name] for row in found.values()], 2))
        cells += difference(found, baseline, name)
    cells += [_mean([row[name] for row in found.values()], 4) for name in ("loss", "training_loss")]
    return f"| {' | '.join(cells)} |"


def _mean(values, digits):
    """Mean and standard deviation over seeds."""
    if None in values:
        return "not finite"
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text


def difference(found, baseline, name):
    """Mean difference to a baseline of the same seeds in points, and p of the paired test.

    Args:
        found: dict from seed to row, a dict.
        baseline: like it; the same one, or one without any of the seeds, has no difference.
        name: of the quantity in the rows, a share.

    Returns:
        List of two texts.
    """
    seeds = sorted(found.keys() & baseline.keys())
    if found is baseline or not seeds:
        return ["", ""]
    pairs = [(100 * found[seed][name], 100 * baseline[seed][name]) for seed in seeds]
    text = f"{statistics.mean(a - b for a, b in pairs):+.2f}"
    if len(pairs) < 2:
        return [text, ""]
    p = scipy.stats.ttest_rel(*zip(*pairs, strict=True)).pvalue
    return [text, f"{p:.3f}" if p >= 0.001 else "below 0.001"]

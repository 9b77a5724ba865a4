"""Means and medians over seeds or rounds."""

import statistics


def medians(rounds):
    """Returns the median of each number of dicts with the same names."""
    return {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}


def with_deviation(values, digits):
    """Returns the mean, and the standard deviation of several values."""
    if None in values:
        return "not finite"
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text


def with_range(values, digits):
    """Returns the mean, and the smallest and the largest one of several values."""
    text = f"{statistics.mean(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
    return text


def difference(found, baseline, name, factor=100, digits=2):
    """Returns the mean difference to a baseline with the same seeds, and p of the paired test.

    Args:
        found: {seed: row}.
        baseline: the same; `found` itself, or a dict without any of the seeds, has no difference.
        factor: multiplies the quantity; 100 for percentage points.
    """
    seeds = sorted(found.keys() & baseline.keys())
    if found is baseline or not seeds:
        return ["", ""]
    pairs = [(factor * found[seed][name], factor * baseline[seed][name]) for seed in seeds]
    text = f"{statistics.mean(a - b for a, b in pairs):+.{digits}f}"
    # Equal pairs have no p.
    if len(pairs) < 2 or all(a == b for a, b in pairs):
        return [text, ""]
    import scipy.stats  # slow to load

    p = scipy.stats.ttest_rel(*zip(*pairs, strict=True)).pvalue
    return [text, f"{p:.3f}" if p >= 0.001 else "below 0.001"]

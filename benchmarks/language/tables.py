"""Ways to train the language model, and the table of their results."""

import collections
import statistics

from benchmarks.lib import markdown, means

BASELINE = "every step, float"
_FLOAT = {"grad_bits": 32}
# By the rule of the paper.
_TERNARY = {"rotate": False}
_FOUR_BITS = {**_TERNARY, "grad_bits": 4, "clip_factor": "auto"}
_WHOLE = {"sparse_as_dense": True}
_DEFAULT = {"sparse_as_dense": "auto"}
# {name: (options of the strategy, options of `DiLoCo` or None)}; outer: rate, momentum.
WAYS = {
    BASELINE: (_FLOAT, None),
    "every step, default": (_DEFAULT, None),
    # Without finer codes for the embedding and the last layer.
    "every step, ternary codes alone": ({**_DEFAULT, "alone": True}, None),
    "every step, default, 4-bit": ({**_DEFAULT, "grad_bits": 4}, None),
    "every step, ternary": (_TERNARY, None),
    "every step, 4-bit": (_FOUR_BITS, None),
    "every step, float, whole embedding": ({**_FLOAT, **_WHOLE}, None),
    "every step, ternary, whole embedding": ({**_TERNARY, **_WHOLE}, None),
    "every step, 4-bit, whole embedding": ({**_FOUR_BITS, "clip_factor": 2.5, **_WHOLE}, None),
    **{
        f"every {steps} steps, {name}": (options, {"sync_every": steps})
        for steps in (8, 32, 128)
        for name, options in (
            ("float", _FLOAT),
            ("default", _DEFAULT),
            ("ternary", _TERNARY),
            ("4-bit", _FOUR_BITS),
        )
    },
    **{
        f"every {steps} steps, float, outer {rate}, {momentum}": (
            _FLOAT,
            {"sync_every": steps, "outer": (rate, momentum)},
        )
        for steps in (8, 32)
        for rate, momentum in ((1.0, 0.0), (1.0, 0.5), (1.0, 0.8), (0.7, 0.9))
    },
}


def table(runs, symbol="character"):
    """Returns means over seeds at each way's best rate, with minimum and maximum, as Markdown.

    Args:
        runs: dicts with "way", "rate", "seed", "bits" (per symbol of the test text),
            "held_out_bits", which choose the rate, "training_bits" and "received_bytes".
        symbol: what the model predicts.
    """
    groups = _by_way(runs)
    best = {
        way: min(groups[way].items(), key=lambda item: _mean(item[1], "held_out_bits"))
        for way in filter(groups.get, WAYS)
    }
    _, baseline = best.get(BASELINE, (None, {}))
    lines = []
    for way, (rate, found) in best.items():
        bits = means.with_range([run["bits"] for run in found.values()], 4)
        cells = [way, f"{rate:g}", len(found), bits]
        cells += [f"{_mean(found, 'training_bits'):.4f}", f"{_mean(found, 'received_bytes'):,.0f}"]
        cells += means.difference(found, baseline, "bits", factor=1, digits=4)
        lines.append(cells)
    titles = f"exchange | rate | seeds | bits a {symbol}, test | training | bytes a step"
    return markdown.table(f"{titles} | to float | p", lines)


def rates(runs, symbol="character"):
    """Returns test bits per symbol by way and rate as Markdown, for ways with several rates."""
    groups = _by_way(runs)
    lines = []
    for way in filter(groups.get, WAYS):
        of_rates = groups[way]
        shared = set.intersection(*(set(found) for found in of_rates.values()))
        if len(of_rates) > 1 and shared:
            seed = min(shared)
            texts = [f"{rate:g}: {of_rates[rate][seed]['bits']:.4f}" for rate in sorted(of_rates)]
            lines.append([way, ", ".join(texts)])
    return markdown.table(f"exchange | bits a {symbol}, by rate", lines)


def _by_way(runs):
    """Returns {way: {rate: {seed: run}}}."""
    groups = collections.defaultdict(lambda: collections.defaultdict(dict))
    for run in runs:
        groups[run["way"]][run["rate"]][run["seed"]] = run
    return groups


def _mean(found, name):
    return statistics.mean(run[name] for run in found.values())

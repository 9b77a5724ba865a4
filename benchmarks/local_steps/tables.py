"""Ways to exchange the changes of local steps, and the table of their results."""

import collections
import statistics

from benchmarks.lib import markdown, means

BASELINE = "every step, float"
_TERNARY = {"grad_bits": 1, "clip_factor": 2.5, "quantize_logits": True}
_FOUR_BITS = {"grad_bits": 4, "clip_factor": "auto", "quantize_logits": True}
_ROTATED = {"rotate": True, "quantize_logits": True}
# (name, options of a run)
WAYS = {
    BASELINE: {"grad_bits": 32},
    "every step, ternary": _TERNARY,
    "every step, 4-bit": _FOUR_BITS,
    "every step, rotated ternary": {"grad_bits": 1, **_ROTATED},
    **{
        f"every {steps} steps, {name}": {"sync_every": steps, **options}
        for steps in (8, 32, 128)
        for name, options in (
            ("float", {"grad_bits": 32}),
            ("ternary", _TERNARY),
            ("4-bit", _FOUR_BITS),
            ("rotated ternary", {"grad_bits": 1, **_ROTATED}),
            ("rotated 4-bit", {"grad_bits": 4, **_ROTATED}),
        )
    },
    "every 32 steps, ternary, auto": {"sync_every": 32, **_TERNARY, "clip_factor": "auto"},
    **{
        f"every {steps} steps, {bits} bits": {
            **{"sync_every": steps, "bits_per_element": bits},
            **_TERNARY,
        }
        for steps, bits in ((4, 0.2), (4, 0.05), (8, 0.4), (8, 0.1), (32, 0.3), (32, 0.1))
    },
    **{
        f"every 32 steps, ternary, outer {rate}, {momentum}": {
            **{"sync_every": 32, "outer_learning_rate": rate, "outer_momentum": momentum},
            **_TERNARY,
        }
        for rate, momentum in ((1.0, 0.0), (0.7, 0.9))
    },
    **{
        f"every {steps} steps, float, outer 1.0, {momentum}": {
            **{"sync_every": steps, "grad_bits": 32},
            **{"outer_learning_rate": 1.0, "outer_momentum": momentum},
        }
        for steps in (8, 16, 32, 64)
        for momentum in (0.0, 0.25, 0.5)
    },
    **{
        f"every 32 steps, ternary, overlap {steps}": {
            **{"sync_every": 32, "overlap": steps},
            **_TERNARY,
        }
        for steps in (8, 24)
    },
}


def table(runs):
    """Returns means over seeds at each way's best rate, with minimum and maximum, as Markdown."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        groups[run["way"]][run["rate"]].append(run)
    best = {
        way: min(
            groups[way].items(), key=lambda item: statistics.mean(run["loss"] for run in item[1])
        )
        for way in filter(groups.get, WAYS)
    }
    by_seed = {way: {run["seed"]: run for run in found} for way, (_, found) in best.items()}
    baseline = by_seed.get(BASELINE, {})
    lines = []
    for way, (rate, found) in best.items():
        cells = [way, rate, len(found)]
        cells.append(means.with_range([100 * run["accuracy"] for run in found], 2))
        cells.append(f"{statistics.mean(run['received_bytes'] for run in found):,.0f}")
        lines.append([*cells, *means.difference(by_seed[way], baseline, "accuracy")])
    titles = "exchange | inner rate | seeds | test accuracy / % | bytes a step | to float | p"
    return markdown.table(titles, lines)

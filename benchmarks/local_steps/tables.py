"""Ways to exchange the changes of local steps, and the table of their results."""

import collections
import statistics

from benchmarks.fidelity import tables

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
QUANTITIES = {
    "accuracy": ("test accuracy / %", 100, 2),
    "received_bytes": ("bytes a step", 1, 0),
}


def table(runs):
    """Returns means over seeds at each way's best rate, with minimum and maximum, as Markdown."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        groups[run["way"]][run["rate"]].append(run)
    titles = [title for title, _, _ in QUANTITIES.values()]
    titles += ["to float", "p"]
    lines = [
        f"| exchange | inner rate | seeds | {' | '.join(titles)} |",
        "|---" * (3 + len(titles)) + "|",
    ]
    best = {
        way: min(
            groups[way].items(), key=lambda item: statistics.mean(run["loss"] for run in item[1])
        )
        for way in filter(groups.get, WAYS)
    }
    by_seed = {way: {run["seed"]: run for run in found} for way, (_, found) in best.items()}
    baseline = by_seed.get(BASELINE, {})
    for way, (rate, found) in best.items():
        cells = [way, str(rate), str(len(found))]
        for name, (_, factor, digits) in QUANTITIES.items():
            values = [factor * run[name] for run in found]
            text = f"{statistics.mean(values):,.{digits}f}"
            if digits and len(values) > 1:
                text += f" ({min(values):.{digits}f} to {max(values):.{digits}f})"
            cells.append(text)
        cells += tables.difference(by_seed[way], baseline, "accuracy")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)

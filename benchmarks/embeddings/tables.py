"""Ways to exchange the gradients of embeddings, and the table of their results."""

import statistics

from benchmarks.lib import markdown, means

FLOAT = "float"
# Options of the strategy; None is Keras without a strategy.
WAYS = {
    "Keras, one process": None,
    FLOAT: {"grad_bits": 32},
    "float, whole tensors": {"grad_bits": 32, "sparse_as_dense": True},
    "ternary, rows as floats": {"sparse_as_dense": False},
    "ternary, default": {},
    "ternary, whole tensors": {"sparse_as_dense": True},
    "4-bit, default": {"grad_bits": 4},
}
RATES = {"Adam": 0.01, "SGD, momentum 0.9": 1.0}


def table(runs):
    """Returns a Markdown table of accuracies and bytes."""
    lines = []
    for optimizer in RATES:
        found = {
            way: {
                run["seed"]: run
                for run in runs
                if (run["optimizer"], run["way"]) == (optimizer, way)
            }
            for way in WAYS
        }
        for way, by_seed in found.items():
            if not by_seed:
                continue
            own = by_seed.values()
            accuracy = means.with_deviation([100 * run["accuracy"] for run in own], 2)
            to_float = means.difference(by_seed, found[FLOAT], "accuracy")
            traffic = _bytes(own) if WAYS[way] is not None else ["", ""]
            lines.append([optimizer, way, accuracy, *to_float, *traffic])
    titles = "optimizer | gradients | accuracy / % | points to float | p | bytes a step | fewer"
    return markdown.table(titles, lines)


def _bytes(runs):
    received, floats = (
        statistics.mean(run[name] for run in runs) for name in ("received_bytes", "float32_bytes")
    )
    return [f"{received:,.0f}", f"{floats / received:.1f} times"]

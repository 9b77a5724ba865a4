"""Runs and table of `benchmarks.fidelity.default`."""

import typing

from benchmarks.fidelity import tables
from benchmarks.fidelity.settings import FLOAT, Run
from benchmarks.lib import markdown

IMAGES, EPOCHS = 12_000, 2
# Columns of the table by way.
WAYS = {
    FLOAT: "float, test accuracy / %",
    "rotated": "default, points to float (p)",
    "rotated, ternary alone": "ternary codes alone, points to float (p)",
    "correlated, clip 2.5": "paper's rule, points to float (p)",
}
_USUAL = (FLOAT, "rotated")
# Where the default has finer codes for some gradients.
_WITH_TERNARY = (*_USUAL, "rotated, ternary alone")
_WITH_PAPER = (*_USUAL, "correlated, clip 2.5")
NETS = {
    "small_cnn": "small CNN",
    "lenet": "LeNet",
    "resnet_20": "ResNet-20",
    "vit": "vision transformer",
    "text_transformer": "text transformer",
}


class Cell(typing.NamedTuple):
    """A setting in which ways are compared.

    Attributes:
        net: name in `NETS`.
        rates: about the best rate of float gradients, and a third of it.
        batch: images per step, over all workers.
        ways: names in `WAYS`.
    """

    net: str
    optimizer: str
    rates: tuple[float, ...]
    workers: int = 8
    batch: int = 64
    ways: tuple[str, ...] = _USUAL


CELLS = (
    Cell("small_cnn", "SGD, momentum 0.9", (0.1, 0.03), ways=_WITH_PAPER),
    Cell("small_cnn", "Adam", (0.01, 0.003), ways=_WITH_PAPER),
    Cell("small_cnn", "RMSprop", (0.003, 0.001), ways=_WITH_PAPER),
    Cell("small_cnn", "AdamW", (0.01, 0.003)),
    Cell("small_cnn", "Lion", (0.001, 0.0003)),
    Cell("small_cnn", "Muon", (0.01, 0.003), ways=_WITH_TERNARY),
    Cell("small_cnn", "SGD, momentum 0.9", (0.1, 0.03), workers=2),
    Cell("small_cnn", "Adam", (0.01, 0.003), workers=2),
    Cell("small_cnn", "SGD, momentum 0.9", (0.1, 0.03), workers=64, batch=256),
    Cell("small_cnn", "Adam", (0.01, 0.003), workers=64, batch=256),
    Cell("lenet", "SGD, momentum 0.9", (0.03, 0.01)),
    Cell("resnet_20", "SGD, momentum 0.9", (0.1, 0.03)),
    Cell("vit", "Adam", (0.003, 0.001)),
    Cell("text_transformer", "Adam", (0.003, 0.001), ways=_WITH_TERNARY),
)


def runs(seeds, cells=CELLS, images=IMAGES):
    """Returns the runs of cells, with runs of one shape after each other."""
    return [
        Run(c.net, c.optimizer, way, c.workers, c.batch, images, EPOCHS, rate, seed)
        for c in cells
        for way in c.ways
        for rate in c.rates
        for seed in seeds
    ]


def table(rows):
    """Returns a Markdown table: accuracy of float gradients, and points of the others to it.

    Omits cells without runs.
    """
    lines = []
    above = ("", "", "")
    for cell in CELLS:
        for rate in cell.rates:
            floats, *found = (by_seed(rows, cell, rate, way) for way in WAYS)
            if not floats:
                continue
            texts = [tables.accuracy(floats)]
            texts += [tables.difference(others, floats) for others in found]
            where = NETS[cell.net], f"{cell.workers} x {cell.batch // cell.workers}", cell.optimizer
            # Omits repetitions.
            differs = [where[: k + 1] != above[: k + 1] for k in range(3)]
            shown = [text if is_new else "" for text, is_new in zip(where, differs, strict=True)]
            above = where
            lines.append([*shown, f"{rate:g}", *texts])
    titles = f"network | workers x images | optimizer | rate | {' | '.join(WAYS.values())}"
    return markdown.table(titles, lines)


def by_seed(rows, cell, rate, way):
    """Returns {seed: row} of a `Cell`, one of its rates and a way."""
    setting = (cell.net, cell.optimizer, cell.workers, cell.batch, rate, way)
    return {
        run.seed: row
        for run, row in rows.items()
        if (run.net, run.optimizer, run.num_nodes, run.batch_size, run.rate, run.gradients)
        == setting
    }

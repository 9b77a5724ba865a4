"""Compares ternary and float training: clip factor, workers, network, batch, precision.

    python -m benchmarks.fidelity --raw_dir=/usr/share/datasets/fashion-mnist --folder=fidelity

--tables selects tables:

* `batches`: a small CNN (0.08 M weights) on 8 workers with batches of 32 to 1,024 images, by
  optimizer. A sweep with one seed chooses the rate of each way to exchange gradients by the loss on
  5,000 held-out images; the table has other seeds.
* `workers`: SGD with momentum at a fixed rate, batches of 128 images over 1 to 64 workers, by clip
  factor and rounding. Float gradients run once if their mean does not depend on the workers; with
  batch norm the mean does.
* `budgets`: the same with a clip factor, in words, and with budgets of bits per element, in
  streams. The table also has the factor by which a worker receives fewer bytes than with float
  gradients if each worker is a separate host.
* `kinds`: a vision transformer on Fashion-MNIST, a transformer of text and two bags of embeddings
  on snippets of installed packages' source (`source_text.py`), with batches of 256 as in `batches`.
* `precisions`: the small CNN in mixed precision, likewise.

A run's seed fixes its initial weights and the order of images for all ways alike, so differences
to float are paired; p is from Student's paired test. The folder keeps finished runs, a JSON line
each. Repeat the command to resume; flags that select some runs add to the folder, and tables show
all runs of --images and --epochs in it.
"""

import functools
import os
import pathlib

from absl import flags

from benchmarks.fidelity import rows as fidelity_rows
from benchmarks.fidelity import settings, tables
from benchmarks.lib import program

_RAW_DIR = flags.DEFINE_string("raw_dir", None, "Folder with Fashion-MNIST's four archives.")
_FOLDER = flags.DEFINE_string("folder", "fidelity", "Folder with the finished runs.")
TABLES = ("workers", "budgets", "kinds", "batches", "precisions")
_TABLES = flags.DEFINE_multi_enum(*("tables", TABLES[:1], TABLES), "Table to make; repeatable.")
_OPTIMIZERS = flags.DEFINE_multi_enum(
    "optimizers",
    None,
    list(settings.OPTIMIZERS),
    "Optimizer of a table with swept rates; repeatable. Default: the table's.",
)
_KINDS = flags.DEFINE_multi_enum(
    *("kinds", settings.KINDS, settings.KINDS),
    "Network of the table `kinds`; repeatable.",
)
_BATCHES = flags.DEFINE_list(
    "batches", [str(batch) for batch in settings.BATCHES], "Batches of the table `batches`."
)
_PRECISIONS = flags.DEFINE_multi_enum(
    *("precisions", settings.PRECISIONS, settings.PRECISIONS),
    "Precision of the table `precisions`; repeatable.",
)
_NETS = flags.DEFINE_multi_enum(
    *("nets", ["small_cnn", "lenet"], list(settings.NETS)),
    "Network of the tables `workers` and `budgets`; repeatable.",
)
_WORKERS = flags.DEFINE_list("workers", ["1", "4", "16"], "Numbers of workers in both tables.")
_GRADIENTS = flags.DEFINE_multi_enum(
    *("gradients", None, list(settings.GRADIENTS)),
    "Way to exchange gradients; repeatable. Default: the table's.",
)
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds; each is one run.")
_IMAGES = flags.DEFINE_integer(
    *("images", 12000, "Training images."), lower_bound=256, upper_bound=55000
)
_EPOCHS = flags.DEFINE_integer("epochs", 3, "Passes through the images.", lower_bound=1)


def perform(runs, rows):
    """Trains the `runs` that `rows` lacks."""
    from benchmarks.fidelity import training

    data = functools.cache(lambda net: training.load(net, _RAW_DIR.value, _IMAGES.value))
    training.perform(runs, rows, data)


def tuned_runs(rows, size, seeds, default_optimizers, **options):
    """Runs sweeps of optimizers, and the runs that follow from them."""
    for optimizer in _OPTIMIZERS.value or default_optimizers:
        ways = _GRADIENTS.value or settings.SWEPT
        sweep = settings.sweep(*size, optimizer, ways, **options)
        perform(sweep, rows)
        perform(settings.tuned({run: rows[run] for run in sweep}, seeds), rows)


def main():
    """Trains the missing runs and prints the tables."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    rows = fidelity_rows.Rows(pathlib.Path(_FOLDER.value) / "runs.jsonl")
    seeds = [int(seed) for seed in _SEEDS.value]
    size = _IMAGES.value, _EPOCHS.value
    by_workers = {
        "workers": (settings.OF_WORKERS, tables.workers),
        "budgets": (settings.OF_BUDGETS, tables.budgets),
    }
    of_tables = {
        "kinds": (settings.OPTIMIZERS, [{"net": net} for net in _KINDS.value]),
        "batches": (settings.OPTIMIZERS, [{"batch": int(b)} for b in _BATCHES.value]),
        "precisions": (
            settings.OF_PRECISIONS,
            [{"precision": precision} for precision in _PRECISIONS.value],
        ),
    }
    for table in _TABLES.value:
        if table in by_workers:
            default_ways, render = by_workers[table]
            counts = [int(count) for count in _WORKERS.value]
            ways = _GRADIENTS.value or default_ways
            perform(settings.workers(*size, _NETS.value, counts, ways, seeds), rows)
            print(f"\n{render(rows.of(*size))}")
            continue
        optimizers, variants = of_tables[table]
        for options in variants:
            tuned_runs(rows, size, seeds, optimizers, **options)
        print(f"\n{tables.tuned(rows.of(*size), table)}")
        print(f"\n{tables.rates(rows.of(*size), table)}")


if __name__ == "__main__":
    flags.mark_flag_as_required("raw_dir")
    program.run(main)

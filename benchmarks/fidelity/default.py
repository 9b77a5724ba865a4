"""Compares the strategy's default gradients with float ones and the paper's rule, at equal rates.

    python -m benchmarks.fidelity.default --raw_dir=/usr/share/datasets/fashion-mnist

Trains each cell of `default_tables`, a network, optimizer and number of workers, for 2 epochs at
two rates: about the best one of float gradients, and a third of it. Data are 12,000 images of
Fashion-MNIST, or other files in MNIST's format, or as many snippets of source code. A seed fixes
initial weights and the order of images for all ways alike, so differences to float are paired; p is
from Student's paired test. The file keeps finished runs, a JSON line each; repeat the command to
resume, to add seeds, or to draw (--pictures). Processes may train different --cells at a time.
The runs of the table in docs/results are in benchmarks/results/default_gradients.jsonl.
"""

import functools
import pathlib

from absl import flags

from benchmarks.fidelity import default_picture
from benchmarks.fidelity.default_tables import CELLS, EPOCHS, IMAGES, runs, table
from benchmarks.fidelity.rows import Rows
from benchmarks.lib import program

_RAW_DIR = flags.DEFINE_string("raw_dir", None, "Folder with Fashion-MNIST's four archives.")
_FILE = flags.DEFINE_string("file", "default.jsonl", "File with the finished runs.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3", "4", "5"], "Seeds; each is one run.")
_CELLS = flags.DEFINE_multi_integer(
    *("cells", None, "Number of a cell, from 0 on, in the order of the table; repeatable."),
    lower_bound=0,
    upper_bound=len(CELLS) - 1,
)
_IMAGES = flags.DEFINE_integer(
    *("images", IMAGES, "Training images."),
    lower_bound=max(cell.batch for cell in CELLS),
    upper_bound=55_000,
)
_PICTURES = flags.DEFINE_string("pictures", None, "Folder to draw accuracy_*.svg in.")


def main():
    """Trains the missing runs and prints the table."""
    from benchmarks.fidelity import training

    rows = Rows(pathlib.Path(_FILE.value))
    cells = [CELLS[number] for number in _CELLS.value or range(len(CELLS))]
    chosen = runs([int(seed) for seed in _SEEDS.value], cells, _IMAGES.value)
    load = functools.cache(lambda net: training.load(net, _RAW_DIR.value, _IMAGES.value))
    training.perform(chosen, rows, load)
    found = rows.of(_IMAGES.value, EPOCHS)
    print(f"\n{table(found)}")
    if _PICTURES.value:
        default_picture.write(found, pathlib.Path(_PICTURES.value))


if __name__ == "__main__":
    flags.mark_flag_as_required("raw_dir")
    program.run(main)

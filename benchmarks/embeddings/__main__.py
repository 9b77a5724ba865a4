"""Trains a text classifier by rows of its embedding as floats, rounded rows and whole tensors.

    sudo apt-get install bible-kjv && bible -f gen1:1-rev22:21 > kjv.txt
    python -m benchmarks.embeddings --text=kjv.txt

A bag of embeddings (8,192 words, 64 columns) and a hidden layer tell from which of the 66 books a
verse is. Four replicas share batches of 128 verses; every fifth verse is for the test. A seed fixes
initial weights and batches for all ways alike, so differences to float are paired; p is from
Student's paired test. Bytes are those that a replica receives in a step if each is a separate host.
The JSON file keeps finished runs; repeat the command to resume or to add seeds.
"""

import itertools
import os
import pathlib
import time

from absl import flags

from benchmarks.embeddings import tables, training
from benchmarks.lib import figures, program

_TEXT = flags.DEFINE_string("text", None, "Text file with a verse a line, such as `Ge1:1 In ...`.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3", "4", "5"], "Seeds; each is one run.")
_EPOCHS = flags.DEFINE_integer("epochs", 3, "Passes through the verses.", lower_bound=1)
_WAYS = flags.DEFINE_multi_enum(
    *("ways", None, list(tables.WAYS)), "Way to exchange gradients; repeatable. Default: all."
)
_JSON = flags.DEFINE_string("json", "embeddings.json", "File with the finished runs.")


def main():
    """Trains the missing runs and prints the table."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    settings = {"text": pathlib.Path(_TEXT.value).name, "epochs": _EPOCHS.value}
    runs = figures.Finished(_JSON.value, settings, "rows")
    parts = training.load(_TEXT.value)
    chosen = itertools.product(map(int, _SEEDS.value), tables.RATES, _WAYS.value or tables.WAYS)
    for seed, optimizer, way in runs.missing(chosen, "seed", "optimizer", "way"):
        start = time.perf_counter()
        found = training.train(*parts, optimizer, way, seed, _EPOCHS.value)
        runs.add({"optimizer": optimizer, "way": way, "seed": seed, **found})
        seconds = time.perf_counter() - start
        print(
            f"{optimizer}, {way}, seed {seed}: {100 * found['accuracy']:.2f} % ({seconds:.0f} s)",
            flush=True,
        )
    print(f"\n{tables.table(runs)}")


if __name__ == "__main__":
    flags.mark_flag_as_required("text")
    program.run(main)

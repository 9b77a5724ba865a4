"""Trains a language model by ternary gradients and local steps: bits per character or word.

A transformer of 0.6 M weights predicts the next character of a text file, or one of 1.7 M weights
its next word (--words). The embedding may be the last layer, too (--tied). Four replicas share
batches of 32 pieces of 64 characters or words, with AdamW at a rate that warms up and falls along
half a cosine to 0. The first eight tenths of the text are for training, the next tenth chooses
rates, and the last one is the test:

    sudo apt-get install bible-kjv && bible -f gen1:1-rev22:21 > kjv.txt
    python -m benchmarks.language --text=kjv.txt

The ways to train are gradients in every step, with the embedding's as rows or whole, and `DiLoCo`
with 8, 32 and 128 steps per exchange: float, ternary, codes of four bits, other outer rates and
momenta. Each way trains at every rate of --learning_rates. The table shows the rate with the fewest
bits on the held-out text, and the difference to float gradients in every step, with p of Student's
paired test over the common seeds. Bytes are those that a replica receives per step if each replica
is a separate host. A seed fixes the initial weights and the pieces of text for all ways alike. All
figures are of the final weights.

The JSON file keeps finished runs. Repeat the command to resume; flags that select some runs add to
the file, and the tables show the whole file.

The runs of docs/results/language.md are in benchmarks/results/language.jsonl and
language_words.jsonl (--words --steps=512), and with --tied in language_tied.jsonl and
language_words_tied.jsonl.
"""

import itertools
import os
import pathlib
import time

from absl import flags

from benchmarks.language import tables
from benchmarks.lib import figures, program

_TEXT = flags.DEFINE_string("text", None, "Text file, UTF-8.")
_WORDS = flags.DEFINE_bool(
    "words", False, "Predict words and signs: the 4,095 most frequent ones; others count as one."
)
_TIED = flags.DEFINE_bool("tied", False, "The embedding is also the last layer.")
_STEPS = flags.DEFINE_integer("steps", 1024, "Steps of training.", lower_bound=10)
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds; each is one run.")
_RATES = flags.DEFINE_list("learning_rates", ["0.001", "0.003"], "Highest learning rates.")
_WAYS = flags.DEFINE_multi_enum(
    *("ways", None, list(tables.WAYS)), "Way to train; repeatable. Default: all."
)
_JSON = flags.DEFINE_string("json", "language.json", "File with the finished runs.")


def main():
    """Trains the missing runs and prints the tables."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from benchmarks.language import training

    settings = {"text": pathlib.Path(_TEXT.value).name, "steps": _STEPS.value}
    symbol = "word" if _WORDS.value else "character"
    if _WORDS.value:
        settings["symbol"] = symbol
    if _TIED.value:
        settings["tied"] = True
    runs = figures.Finished(_JSON.value, settings)
    ways = _WAYS.value or tables.WAYS
    chosen = itertools.product(map(int, _SEEDS.value), ways, map(float, _RATES.value))
    text = training.load(_TEXT.value, _WORDS.value)
    for seed, way, rate in runs.missing(chosen, "seed", "way", "rate"):
        start = time.perf_counter()
        found = training.train(*text, way, rate, seed, _STEPS.value, _TIED.value)
        runs.add({"way": way, "rate": rate, "seed": seed, **found})
        seconds = time.perf_counter() - start
        print(f"{way}, {rate:g}, seed {seed}: {found['bits']:.4f} ({seconds:.0f} s)", flush=True)
    print(f"\n{tables.table(runs, symbol)}\n\n{tables.rates(runs, symbol)}")


if __name__ == "__main__":
    flags.mark_flag_as_required("text")
    program.run(main)

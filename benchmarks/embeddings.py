"""Trains a text classifier by rows of its embedding as floats, rounded rows and whole tensors.

    sudo apt-get install bible-kjv && bible -f gen1:1-rev22:21 > kjv.txt
    python -m benchmarks.embeddings --text=kjv.txt

A bag of embeddings (8,192 words, 64 columns) and a hidden layer tell from which of the 66 books a
verse is. Four replicas share batches of 128 verses; every fifth verse is for the test. A seed fixes
initial weights and batches for all ways alike, so differences to float are paired; p is from
Student's paired test. Bytes are those that a replica receives in a step if each is a separate host.
The JSON file keeps finished runs; repeat the command to resume or to add seeds.
"""

import collections
import os
import pathlib
import re
import statistics
import time

from absl import app, flags

from benchmarks.fidelity import tables
from benchmarks.lib import figures

_TEXT = flags.DEFINE_string("text", None, "Text file with a verse a line, such as `Ge1:1 In ...`.")
_SEEDS = flags.DEFINE_list("seeds", ["1", "2", "3", "4", "5"], "Seeds; each is one run.")
_EPOCHS = flags.DEFINE_integer("epochs", 3, "Passes through the verses.", lower_bound=1)
_JSON = flags.DEFINE_string("json", "embeddings.json", "File with the finished runs.")

WORDS, COLUMNS, LENGTH, REPLICAS, BATCH = 8192, 64, 32, 4, 128
FLOAT = "float"
# Options of the strategy.
WAYS = {
    FLOAT: {"grad_bits": 32},
    "ternary, rows as floats": {"sparse_as_dense": False},
    "ternary, default": {},
    "ternary, whole tensors": {"sparse_as_dense": True},
    "4-bit, default": {"grad_bits": 4},
}
RATES = {"Adam": 0.01, "SGD, momentum 0.9": 1.0}


def load(path):
    """Reads verses as numbers of their words.

    Args:
        path: text file, UTF-8.

    Returns:
        ((train verses, books), (test verses, books)), int32 arrays.
    """
    import numpy as np

    verses = re.findall(
        r"^(\d?[A-Za-z]+)\d+:\d+ (.*)$", pathlib.Path(path).read_text("utf-8"), re.M
    )
    books = list(dict.fromkeys(book for book, _ in verses))
    texts = [re.findall("[a-z]+", text.lower()) for _, text in verses]
    most = collections.Counter(word for text in texts for word in text).most_common(WORDS - 2)
    # 0 fills up verses, 1 stands for rare words.
    numbers = {word: number for number, (word, _) in enumerate(most, 2)}
    x = np.zeros([len(texts), LENGTH], np.int32)
    for row, text in zip(x, texts, strict=True):
        codes = [numbers.get(word, 1) for word in text[:LENGTH]]
        row[: len(codes)] = codes
    y = np.array([books.index(book) for book, _ in verses], np.int32)
    is_test = np.arange(len(y)) % 5 == 0
    return (x[~is_test], y[~is_test]), (x[is_test], y[is_test])


def train(train_part, test_part, optimizer, way, seed, epochs):
    """Returns a dict with "accuracy" on the test verses, "received_bytes" and "float32_bytes"."""
    import keras
    import tensorflow as tf

    import terngrad_tf

    keras.utils.set_random_seed(seed)
    strategy = terngrad_tf.TernGradStrategy(REPLICAS, **WAYS[way])
    steps = epochs * (len(train_part[1]) // BATCH)
    schedule = keras.optimizers.schedules.CosineDecay(RATES[optimizer], steps)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input([LENGTH], dtype="int32"),
                keras.layers.Embedding(WORDS, COLUMNS),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(66),
            ]
        )
        made = {
            "Adam": lambda: keras.optimizers.Adam(schedule),
            "SGD, momentum 0.9": lambda: keras.optimizers.SGD(schedule, momentum=0.9),
        }[optimizer]()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(made, loss, metrics=["accuracy"])
    traffic = []

    class Bytes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch % 10 == 0:
                traffic.append(strategy.traffic)

    data = tf.data.Dataset.from_tensor_slices(train_part).shuffle(len(train_part[1]), seed=seed)
    data = data.batch(BATCH, drop_remainder=True)
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=[Bytes()])
    _, accuracy = model.evaluate(*test_part, batch_size=1024, verbose=0)
    return {
        "accuracy": accuracy,
        "training_loss": history.history["loss"][-1],
        "received_bytes": statistics.mean(t.received_bytes for t in traffic),
        "float32_bytes": statistics.mean(t.float32_bytes for t in traffic),
    }


def table(runs):
    """Returns a Markdown table of accuracies and bytes."""
    lines = [
        "| optimizer | gradients | accuracy / % | points to float | p | bytes a step | fewer |",
        "|---|---|---|---|---|---|---|",
    ]
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
            received, floats = (
                statistics.mean(run[name] for run in own)
                for name in ("received_bytes", "float32_bytes")
            )
            cells = [optimizer, way, tables.mean([100 * run["accuracy"] for run in own], 2)]
            to_float = tables.difference(by_seed, found[FLOAT], "accuracy")
            cells += ["", ""] if way == FLOAT else to_float
            cells += [f"{received:,.0f}", f"{floats / received:.1f} times"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv):
    """Trains the missing runs and prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    settings = {"text": pathlib.Path(_TEXT.value).name, "epochs": _EPOCHS.value}
    runs = figures.read_finished(_JSON.value, settings)
    done = {(run["optimizer"], run["way"], run["seed"]) for run in runs}
    parts = load(_TEXT.value)
    for seed in map(int, _SEEDS.value):
        for optimizer in RATES:
            for way in WAYS:
                if (optimizer, way, seed) in done:
                    continue
                start = time.perf_counter()
                found = train(*parts, optimizer, way, seed, _EPOCHS.value)
                runs.append({"optimizer": optimizer, "way": way, "seed": seed, **found})
                figures.write_json(_JSON.value, {"settings": settings, "runs": runs})
                seconds = time.perf_counter() - start
                print(
                    f"{optimizer}, {way}, seed {seed}: {100 * found['accuracy']:.2f} %"
                    f" ({seconds:.0f} s)",
                    flush=True,
                )
    print(f"\n{table(runs)}")
    return 0


if __name__ == "__main__":
    flags.mark_flag_as_required("text")
    app.run(main)

"""The text classifier: its data, and a training."""

import collections
import pathlib
import re
import statistics

from benchmarks.embeddings.tables import RATES, WAYS

WORDS, COLUMNS, LENGTH, REPLICAS, BATCH = 8192, 64, 32, 4, 128


def load(path):
    """Reads verses as numbers of their words.

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
    """Returns a dict with "accuracy" on the test verses, and under a strategy with bytes."""
    import keras
    import tensorflow as tf

    import terngrad_tf

    keras.utils.set_random_seed(seed)
    options = WAYS[way]
    strategy = (
        tf.distribute.get_strategy()
        if options is None
        else terngrad_tf.TernGradStrategy(REPLICAS, **options)
    )
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
            if options is not None and batch % 10 == 0:
                traffic.append(strategy.traffic)

    data = tf.data.Dataset.from_tensor_slices(train_part).shuffle(len(train_part[1]), seed=seed)
    data = data.batch(BATCH, drop_remainder=True)
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=[Bytes()])
    _, accuracy = model.evaluate(*test_part, batch_size=1024, verbose=0)
    result = {"accuracy": accuracy, "training_loss": history.history["loss"][-1]}
    if traffic:
        result["received_bytes"] = statistics.mean(t.received_bytes for t in traffic)
        result["float32_bytes"] = statistics.mean(t.float32_bytes for t in traffic)
    return result

"""A small language model of characters or words, and its training on a text file."""

import collections
import math
import pathlib
import re

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import terngrad_tf
from benchmarks.fidelity.networks import Positions
from benchmarks.language.tables import WAYS
from benchmarks.lib.quantizations import quantization

LENGTH = 64
BATCH_SIZE = 32
REPLICAS = 4
_WIDTH, _HEADS, _BLOCKS = 128, 4, 3
_WARM_UP = 0.05
# The most frequent words and signs; all others count as one.
_NUM_WORDS = 4095


def load(path, words=False):
    """Reads a text as numbers of its characters, or of its words and signs, in three parts.

    Returns:
        ({"train": int32 [n], "held_out": ..., "test": ...}, number of different symbols): eight
        tenths, one tenth and one tenth of the text.
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(
            f"--text must be a text file in UTF-8. Received: {path} ({error})"
        ) from None
    symbols = re.findall(r"\w+|[^\w\s]", text) if words else list(text)
    least = 10 * (LENGTH + 2)
    if len(symbols) < least:
        kind = "words" if words else "characters"
        raise SystemExit(
            f"--text must hold at least {least} {kind}. Received: {path} with {len(symbols)}"
        )
    if words:
        known = collections.Counter(symbols).most_common(_NUM_WORDS)
        numbers = {word: number for number, (word, _) in enumerate(known, 1)}
    else:
        numbers = {letter: number for number, letter in enumerate(sorted(set(symbols)))}
    codes = np.array([numbers.get(symbol, 0) for symbol in symbols], "int32")
    ends = [len(codes) * tenths // 10 for tenths in (8, 9)]
    parts = dict(zip(("train", "held_out", "test"), np.split(codes, ends), strict=True))
    return parts, len(numbers) + words


def build(num_symbols, tied=False):
    """Builds a causal decoder-only transformer: inputs `[batch, LENGTH]`, outputs logits.

    Args:
        tied: the embedding is also the last layer, as in GPT-2.
    """
    text = keras.Input((LENGTH,), dtype="int32")
    kind = layers.ReversibleEmbedding if tied else layers.Embedding
    embedding = kind(num_symbols, _WIDTH)
    x = embedding(text)
    x = Positions()(x)
    for _ in range(_BLOCKS):
        y = layers.LayerNormalization()(x)
        x += layers.MultiHeadAttention(_HEADS, _WIDTH // _HEADS)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        x += layers.Dense(_WIDTH)(layers.Dense(4 * _WIDTH, "gelu")(y))
    x = layers.LayerNormalization()(x)
    logits = embedding(x, reverse=True) if tied else layers.Dense(num_symbols)(x)
    return keras.Model(text, logits)


def train(parts, num_symbols, way, rate, seed, steps, tied=False):
    """Trains from the start and tests the final weights.

    Args:
        parts: first result of `load`.
        way: one of `WAYS`.
        rate: highest rate of AdamW.
        seed: fixes the initial weights and the pieces of text.
        tied: as in `build`.

    Returns:
        Dict with "bits" and "held_out_bits", the cross-entropy per symbol of these parts,
        "training_bits", its mean over the last tenth of the steps, and "received_bytes" per step.
    """
    options, local = WAYS[way]
    options = dict(options)
    whole = options.pop("sparse_as_dense", False)
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    strategy = terngrad_tf.TernGradStrategy(
        REPLICAS, sparse_as_dense=whole, quantization=quantization(**options)
    )
    with strategy.scope():
        model = build(num_symbols, tied)
        model.compile(
            _optimizer(rate, steps, local),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
    # One epoch: its end brings replicas of local steps together.
    history = model.fit(
        *(pieces(parts["train"], seed), None),
        steps_per_epoch=steps,
        shuffle=False,
        verbose=0,
        callbacks=[LastTenth(steps)],
    )
    alone = build(num_symbols, tied)
    alone.set_weights(model.get_weights())
    return {
        "bits": bits_of(alone, parts["test"]),
        "held_out_bits": bits_of(alone, parts["held_out"]),
        "training_bits": history.history["loss"][-1] / math.log(2),
        "received_bytes": _received_bytes(strategy, model.optimizer),
    }


class LastTenth(keras.callbacks.Callback):
    """Lets the logs of an epoch of `steps` steps be means over its last tenth."""

    def __init__(self, steps):
        super().__init__()
        self._begin = steps - max(1, steps // 10)

    def on_train_batch_begin(self, batch, logs=None):
        """Called by `fit`."""
        if batch == self._begin:
            self.model.reset_metrics()


def pieces(codes, seed):
    """Returns endless batches: pieces from random places, and the same shifted by one symbol."""
    codes = tf.constant(codes)
    starts = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=False)

    def piece(number):
        start = tf.cast(number % (codes.shape[0] - LENGTH), tf.int32)
        symbols = codes[start : start + LENGTH + 1]
        symbols.set_shape([LENGTH + 1])
        return symbols[:-1], symbols[1:]

    return starts.map(piece).batch(BATCH_SIZE, drop_remainder=True)


def bits_of(model, codes):
    """Returns the cross-entropy per symbol of a part, in bits; compiles the model."""
    whole = codes[: (len(codes) - 1) // LENGTH * LENGTH + 1]
    inputs, targets = whole[:-1].reshape(-1, LENGTH), whole[1:].reshape(-1, LENGTH)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model.evaluate(inputs, targets, batch_size=256, verbose=0) / math.log(2)


def _optimizer(rate, steps, local):
    warm_up = max(1, round(_WARM_UP * steps))
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - warm_up, warmup_target=rate, warmup_steps=warm_up
    )
    inner = keras.optimizers.AdamW(schedule, weight_decay=0.1)
    inner.exclude_from_weight_decay(var_names=["bias", "beta", "gamma", "table"])
    if local is None:
        return inner
    outer = None
    if "outer" in local:
        outer_rate, momentum = local["outer"]
        outer = keras.optimizers.SGD(outer_rate, momentum, nesterov=momentum > 0)
    return terngrad_tf.DiLoCo(inner, local["sync_every"], outer=outer)


def _received_bytes(strategy, optimizer):
    if isinstance(optimizer, terngrad_tf.DiLoCo):
        sync_every = optimizer.sync_every
        return strategy.traffic_of(0, optimizer.groups).received_bytes / sync_every
    return strategy.traffic.received_bytes

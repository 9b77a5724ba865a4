"""Exchanges streams of variable size between members."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.ternary.fused.streams.sparse_units import SIZES

# The base of words that `ternary.compress` takes.
BASE = 4
# Default share of non-zero codes: LeNet's on Fashion-MNIST at `clip_factor=2.5`.
NONZERO_SHARE = 0.14
# Padded lengths between consecutive powers of two: TensorFlow makes members agree on each new one.
_LENGTHS = 32


def all_gather(processes: Any, words: tf.Tensor) -> Any:
    """Compresses words and sends them to all members.

    Args:
        words: int32 `[L, W]`, for L streams.

    Returns:
        Words of all members, int32 `[members * L, W]`, and the number received.
    """
    own = tf.unstack(words)
    streams = [ternary.compress(w) for w in own]
    lengths = processes.all_gather(tf.stack([tf.size(stream) for stream in streams]))
    longest = message_length(lengths)
    gathered = processes.all_gather(_filled_up(streams, longest))
    received = (processes.size - 1) * (longest + words.shape[0])
    return _decompressed(gathered, lengths, processes.rank, own), received


def all_to_all(processes: Any, chunks: Sequence[tf.Tensor]) -> Any:
    """Compresses chunks of words and sends each to its member.

    Args:
        chunks: L tensors, int32 `[members, C]`; row m is for member m.

    Returns:
        Words for this member, int32 `[members * L, C]`, and the number received.
    """
    members = processes.size
    streams = [[ternary.compress(c[member]) for c in chunks] for member in range(members)]
    lengths = tf.stack([tf.stack([tf.size(s) for s in of_member]) for of_member in streams])
    all_lengths = processes.all_gather(tf.reshape(lengths, [-1]))
    all_lengths = tf.reshape(all_lengths, [members, members, len(chunks)])
    longest = message_length(all_lengths)
    received = processes.all_to_all(tf.stack([_filled_up(s, longest) for s in streams]))
    own = [chunk[processes.rank] for chunk in chunks]
    words = _decompressed(received, all_lengths[:, processes.rank], processes.rank, own)
    return words, (members - 1) * (longest + members * len(chunks))


def lengths(words: tf.Tensor) -> tf.Tensor:
    """Returns the lengths of the streams of rows of words: int32 `[..., W]` to `[...]`."""
    rows = tf.reshape(words, [-1, words.shape[-1]])
    found = tf.map_fn(lambda row: tf.size(ternary.compress(row)), rows, fn_output_signature="int32")
    return tf.reshape(found, words.shape[:-1])


def expected_length(num_words: int, nonzero_share: float, num_codes: int = 1) -> float:
    """Returns the expected words of a message with the streams of sums of codes.

    Args:
        num_words: words of a stream before compression.
        nonzero_share: share of non-zero codes among the added codes.
        num_codes: codes in a sum; each of its trits has a stream.
    """
    total = 0.0
    shares = trit_shares(nonzero_share, num_codes)
    for share in shares:
        bits = [1 / 2**units.log2 + share * units.code_bits for units in SIZES]
        total += 2 + num_words * ternary.digits_per_word(BASE) * min(2.0, *bits) / 32
    return total * (1 + 1 / (4 * _LENGTHS)) + len(shares)


def trit_shares(nonzero_share: float, num_codes: int) -> list[float]:
    """Returns the share of non-zero trits in sums of codes by place, lowest first.

    Assumes independent codes, with 1 and -1 equally frequent.
    """
    of_code = [nonzero_share / 2, 1 - nonzero_share, nonzero_share / 2]
    of_sum = np.array(functools.reduce(np.convolve, [of_code] * num_codes))
    values = ternary.trit_values(ternary.num_trits(num_codes))
    digits = np.arange(-num_codes, num_codes + 1) + sum(values)
    return [float(of_sum[digits // value % 3 != 1].sum()) for value in values]


def nonzero_share(bits_per_element: float) -> float:
    """Returns the largest share of non-zero codes with at most these bits per element, or 1."""
    shares = [(bits_per_element - 1 / 2**units.log2) / units.code_bits for units in SIZES]
    return min(max(shares), 1.0)


def compression(nonzero_share: float) -> float:
    """Returns the work per element of writing a stream, in the unit of `Wire.work`."""
    return min(1.5 + 80 * nonzero_share, 10.0)


def decompression(nonzero_share: float) -> float:
    """Returns the work of reading a stream, like `compression`."""
    return 1 + 15 * nonzero_share


def message_length(lengths: tf.Tensor) -> tf.Tensor:
    """Returns the length of messages with streams of lengths `[..., streams of a message]`.

    Integer arithmetic gives the same result on all processors.
    """
    longest = tf.reduce_max(tf.reduce_sum(lengths, axis=-1))
    below = longest
    for shift in (1, 2, 4, 8, 16):
        below = tf.bitwise.bitwise_or(below, tf.bitwise.right_shift(below, shift))
    step = tf.maximum((below + 1) // (2 * _LENGTHS), 1)
    return -(-longest // step) * step


def _filled_up(streams, length):
    """Concatenates streams to a message of this length."""
    message = tf.concat(streams, 0)
    return tf.pad(message, [[0, length - tf.size(message)]])


def _decompressed(messages, lengths, rank, own):
    """Returns the words of all members, `[members * L, W]`.

    Args:
        messages: int32 tensor of shape [members, length], with L streams of each member.
        lengths: int32 tensor of shape [members, L], lengths of the streams.
        rank: this member.
        own: its L words, which need no decompression.
    """
    starts = tf.cumsum(lengths, axis=1, exclusive=True)
    num_words = own[0].shape[0]
    words = []
    for member in range(lengths.shape[0]):
        if member == rank:
            words += own
            continue
        words += [
            ternary.decompress(messages[member, starts[member, stream] :], num_words)
            for stream in range(len(own))
        ]
    return tf.stack(words)

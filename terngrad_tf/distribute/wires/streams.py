"""Streams of no fixed size between members."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.ternary.fused.sparse_units import SIZES

# The base of words that `ternary.compress` takes.
BASE = 4
# Messages are filled up to one of so many lengths between a power of two and the next: TensorFlow
# has members agree on each new length once.
_LENGTHS = 32


def all_gather(processes: Any, words: Sequence[tf.Tensor]) -> Any:
    """Compresses words, and sends them to all members.

    Args:
        processes: `ProcessGroup`.
        words: list of L int32 tensors of shape [W], of as many streams.

    Returns:
        Words of all members, int32 `[members * L, W]`, and how many words were received.
    """
    streams = [ternary.compress(w) for w in words]
    lengths = processes.all_gather(tf.stack([tf.size(stream) for stream in streams]))
    longest = message_length(lengths)
    gathered = processes.all_gather(_filled_up(streams, longest))
    received = (processes.size - 1) * (longest + len(words))
    return _decompressed(gathered, lengths, words[0].shape[0]), received


def all_to_all(processes: Any, chunks: Sequence[tf.Tensor]) -> Any:
    """Compresses chunks of words, and sends each to its member.

    Args:
        processes: `ProcessGroup`.
        chunks: list of L int32 tensors of shape [members, C]; row m is for member m.

    Returns:
        Words of all members for this one, int32 `[members * L, C]`, and how many words were
        received.
    """
    members = processes.size
    streams = [[ternary.compress(c[member]) for c in chunks] for member in range(members)]
    lengths = tf.stack([tf.stack([tf.size(s) for s in of_member]) for of_member in streams])
    # Everybody learns the length of all messages, and takes the streams sent to it.
    all_lengths = processes.all_gather(tf.reshape(lengths, [-1]))
    all_lengths = tf.reshape(all_lengths, [members, members, len(chunks)])
    longest = message_length(all_lengths)
    received = processes.all_to_all(tf.stack([_filled_up(s, longest) for s in streams]))
    words = _decompressed(received, all_lengths[:, processes.rank], chunks[0].shape[1])
    return words, (members - 1) * (longest + members * len(chunks))


def expected_length(num_words: int, nonzero_share: float) -> float:
    """Words of a stream of words, in base 4, of which this share of the codes is not 0.

    As `ternary.compress` makes it, filled up to the length of a message.
    """
    bits = [1 / 2**units.log2 + nonzero_share * units.code_bits for units in SIZES]
    words = 2 + num_words * ternary.digits_per_word(BASE) * min(2.0, *bits) / 32
    return words * (1 + 1 / (4 * _LENGTHS))


def nonzero_share(bits_per_element: float) -> float:
    """The largest share of codes not 0 whose stream takes so many bits an element; at most 1."""
    shares = [(bits_per_element - 1 / 2**units.log2) / units.code_bits for units in SIZES]
    return min(max(shares), 1.0)


def message_length(lengths: tf.Tensor) -> tf.Tensor:
    """Length of messages that hold streams of these lengths, `[..., streams of a message]`.

    In integers, of which all processors make the same.
    """
    longest = tf.reduce_max(tf.reduce_sum(lengths, axis=-1))
    below = longest
    for shift in (1, 2, 4, 8, 16):
        below = tf.bitwise.bitwise_or(below, tf.bitwise.right_shift(below, shift))
    step = tf.maximum((below + 1) // (2 * _LENGTHS), 1)
    return -(-longest // step) * step


def _filled_up(streams, length):
    """One message of streams, one after another."""
    message = tf.concat(streams, 0)
    return tf.pad(message, [[0, length - tf.size(message)]])


def _decompressed(messages, lengths, num_words):
    """Words of messages `[members, length]` that hold streams of lengths `[members, L]`."""
    starts = tf.cumsum(lengths, axis=1, exclusive=True)
    return tf.stack(
        [
            ternary.decompress(messages[member, starts[member, stream] :], num_words)
            for member in range(lengths.shape[0])
            for stream in range(lengths.shape[1])
        ]
    )

"""What all wires share."""

import dataclasses
import typing
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, Traffic, ring_bytes


@dataclasses.dataclass(frozen=True)
class Wire:
    """One way for the codes of one bucket of gradients to travel.

    A subclass says how many words each member receives, and does the exchange.

    Args:
        sizes: elements of each tensor.
        num_members: M, the members of the exchange.
        num_local: L, replicas whose codes a member adds before it sends.
        levels: codes are whole numbers from `-levels` to `levels`. Default 1.
        num_scales: scales that travel. Default None: one a tensor.
        num_elements: of the gradients. Default None: those of the tensors.
    """

    # What users call it, and whether it gives the sum of the replicas' codes, bit for bit.
    name: typing.ClassVar[str]
    is_lossless: typing.ClassVar[bool] = True
    # Whether `received_words` holds for all gradients; otherwise it is the most that can be.
    has_fixed_size: typing.ClassVar[bool] = True
    # Messages that wait for each other, without that of the scales.
    num_messages: typing.ClassVar[int]

    sizes: tuple[int, ...]
    num_members: int
    num_local: int
    levels: int = 1
    num_scales: int | None = None
    num_elements: int | None = None

    @property
    def num_replicas(self) -> int:
        return self.num_members * self.num_local

    @property
    def total_bias(self) -> int:
        """The largest sum of codes: what digits of sums are larger by than sums."""
        return self.num_replicas * self.levels

    @property
    def local_base(self) -> int:
        """Base in which the words of one member's replicas can be added."""
        return 2 * self.num_local * self.levels + 1

    @property
    def total_base(self) -> int:
        """Base in which the words of all replicas can be added."""
        return 2 * self.total_bias + 1

    def num_words(self, base: int) -> int:
        """Words of all tensors in `base`: every tensor starts a new word."""
        return sum(ternary.num_words(size, base) for size in self.sizes)

    @property
    def received_words(self) -> float:
        """Words that each member receives, without the scales."""
        raise NotImplementedError

    def expected_words(self, nonzero_share: float) -> float:
        """Words that each member receives where this share of the codes is not 0."""
        del nonzero_share
        return self.received_words

    def work(self, nonzero_share: float) -> float:
        """Arithmetic for an element, besides encoding its codes once and decoding the sums.

        In units of doubling a float32 in place, measured on 2 and 16 million elements, on one
        thread, for 2 and 4 members of one replica. Default 1.0, as to add words once.

        Args:
            nonzero_share: of the codes.
        """
        del nonzero_share
        return 1.0

    def sum(self, bucket: Any) -> Any:
        """Sums the gradients of all replicas; on the first local device.

        Args:
            bucket: `exchange.Bucket` of tensors with these sizes.

        Returns:
            List of T tensors, and the words that this member received: a number, or a float32
            scalar tensor.
        """
        raise NotImplementedError

    @property
    def scale_bytes(self) -> int:
        """Bytes of scales that each member receives."""
        num_scales = len(self.sizes) if self.num_scales is None else self.num_scales
        return ring_bytes(WORD_BYTES * num_scales, self.num_members)

    @property
    def traffic(self) -> Traffic:
        """`Traffic` of the exchange, scales included; without words of no fixed size."""
        words = self.received_words if self.has_fixed_size else 0
        num_elements = sum(self.sizes) if self.num_elements is None else self.num_elements
        return Traffic(
            wire=self.name,
            num_members=self.num_members,
            received_bytes=round(WORD_BYTES * words) + self.scale_bytes,
            float32_bytes=ring_bytes(WORD_BYTES * num_elements, self.num_members),
        )


def fill_up(words: tf.Tensor, length: int, base: int, digit: int) -> tf.Tensor:
    """Words, int32 `[W]`, and so many more that they are `length`, which hold one digit alone."""
    digits = tf.fill([ternary.digits_per_word(base)], digit)
    filling = tf.tile(ternary.pack(digits, base), [length - words.shape[0]])
    # Not as int32, which TensorFlow joins in the memory of a GPU's host.
    parts = [tf.bitcast(part, tf.float32) for part in (words, filling)]
    return tf.bitcast(tf.concat(parts, 0), tf.int32)

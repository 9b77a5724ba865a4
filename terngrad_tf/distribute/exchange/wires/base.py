"""The base class of all wires: `Wire`."""

import dataclasses
import typing
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange.traffic import (
    WORD_BYTES,
    Traffic,
    ring_bytes,
    scale_bytes,
    scales_travel_to_all,
)


class Sums(typing.NamedTuple):
    """What an exchange gives.

    Attributes:
        tensors: list of the T sums over all replicas.
        received_words: words that this member received: a number, or a float32 scalar tensor.
        errors: float32 tensor of shape [T]: the mean squared error of an element that rounding the
            sums adds. None if the sums are exact, or if the gradients are not rotated.
    """

    tensors: list[tf.Tensor]
    received_words: Any
    errors: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Wire:
    """One way for the codes of one bucket of gradients to travel.

    A subclass does the exchange and computes the number of words that each member receives.

    Args:
        sizes: elements of each tensor.
        num_members: M, the members of the exchange.
        num_local: L, replicas whose codes a member adds before it sends.
        levels: codes are whole numbers from `-levels` to `levels`. Default 1.
        num_scales: scales that travel. Default None: one per tensor.
        num_elements: elements of the gradients. Default None: the sum of `sizes`.
    """

    # Name of the wire for users; lossless wires give the sum of the replicas' codes, bit for bit.
    name: typing.ClassVar[str]
    is_lossless: typing.ClassVar[bool] = True
    # True if `received_words` is the same for all gradients; otherwise it is an upper bound.
    has_fixed_size: typing.ClassVar[bool] = True
    # Messages that wait for each other, without those of the scales.
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
        """The largest sum of codes, which is added to sums to make digits of them."""
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
        """Returns the words of all tensors in `base`: every tensor starts a new word."""
        return sum(ternary.num_words(size, base) for size in self.sizes)

    @property
    def received_words(self) -> float:
        """Words that each member receives, without the scales."""
        raise NotImplementedError

    def expected_words(self, nonzero_share: float) -> float:
        """Returns the words that each member receives if this share of the codes is not 0."""
        del nonzero_share
        return self.received_words

    def work(self, nonzero_share: float) -> float:
        """Returns the work per element, besides encoding the codes once and decoding the sums.

        The unit is doubling a float32 in place, measured on 2 and 16 million elements, on one
        thread, for 2 and 4 members of one replica. Default 1.0, the work of adding words once.

        Args:
            nonzero_share: share of the codes that are not 0.
        """
        del nonzero_share
        return 1.0

    def sum(self, bucket: Any) -> Sums:
        """Sums the gradients of all replicas on the first local device.

        Args:
            bucket: `exchange.Bucket` of tensors with these sizes.
        """
        raise NotImplementedError

    @property
    def num_scale_messages(self) -> int:
        """Messages of scales, before `num_messages`."""
        return 1 if scales_travel_to_all(self._num_scales, self.num_members) else 2

    @property
    def scale_bytes(self) -> int:
        """Bytes of scales that each member receives."""
        return scale_bytes(self._num_scales, self.num_members, self.num_scales is not None)

    @property
    def _num_scales(self):
        return len(self.sizes) if self.num_scales is None else self.num_scales

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
    """Pads words, int32 `[W]`, to `length` with words that repeat one digit."""
    digits = tf.fill([ternary.digits_per_word(base)], digit)
    filling = tf.tile(ternary.pack(digits, base), [length - words.shape[0]])
    # Not as int32, which TensorFlow joins in the memory of a GPU's host.
    parts = [tf.bitcast(part, tf.float32) for part in (words, filling)]
    return tf.bitcast(tf.concat(parts, 0), tf.int32)

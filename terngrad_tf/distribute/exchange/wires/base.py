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
        tensors: the T sums over all replicas.
        received_words: words that this member received, a number or a float32 scalar tensor.
        errors: float32 `[T]`, mean squared error per element of rounding the sums; None if sums are
            exact, or without rotation.
    """

    tensors: list[tf.Tensor]
    received_words: Any
    errors: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Wire:
    """One way for the codes of one bucket of gradients to travel.

    Args:
        sizes: elements of each tensor.
        num_members: M, the members of the exchange.
        num_local: L, replicas whose codes a member adds before it sends.
        levels: the largest code. Default 1.
        num_scales: scales that travel. Default: one per tensor.
        num_elements: elements of the gradients. Default: the sum of `sizes`.
    """

    name: typing.ClassVar[str]
    is_lossless: typing.ClassVar[bool] = True
    # If False, `received_words` is an upper bound.
    has_fixed_size: typing.ClassVar[bool] = True
    # Successive messages, without the scales.
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
        """The largest sum of codes; added to sums, it makes them digits."""
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

        The unit is doubling a float32 in place on one thread; adding words once is 1.0.
        """
        del nonzero_share
        return 1.0

    def sum(self, bucket: Any) -> Sums:
        """Sums the gradients of all replicas on the first local device."""
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
    def num_gradient_elements(self) -> int:
        """Elements of the gradients, which rotation may pad to `sizes`."""
        return sum(self.sizes) if self.num_elements is None else self.num_elements

    @property
    def traffic(self) -> Traffic:
        """`Traffic` of the exchange, scales included; without words of no fixed size."""
        words = self.received_words if self.has_fixed_size else 0
        return Traffic(
            wire=self.name,
            num_members=self.num_members,
            received_bytes=round(WORD_BYTES * words) + self.scale_bytes,
            float32_bytes=ring_bytes(WORD_BYTES * self.num_gradient_elements, self.num_members),
        )


def fill_up(words: tf.Tensor, length: int, base: int, digit: int) -> tf.Tensor:
    """Pads words, int32 `[W]`, to `length` with words that repeat one digit."""
    digits = tf.fill([ternary.digits_per_word(base)], digit)
    filling = tf.tile(ternary.pack(digits, base), [length - words.shape[0]])
    # Not as int32, which TensorFlow joins in the memory of a GPU's host.
    parts = [tf.bitcast(part, tf.float32) for part in (words, filling)]
    return tf.bitcast(tf.concat(parts, 0), tf.int32)

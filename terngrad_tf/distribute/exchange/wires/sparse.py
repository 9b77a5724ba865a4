"""Sends entropy-coded codes to all members."""

from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange.wires import streams
from terngrad_tf.distribute.exchange.wires.base import Sums, Wire


class Sparse(Wire):
    """Every member receives the streams of all others, as long as their codes need.

    The sums of a member's codes travel as trits, one stream per place.
    """

    name = "sparse"
    has_fixed_size = False
    num_messages = 2

    @property
    def num_trits(self) -> int:
        """Streams of a member."""
        return ternary.num_trits(self.num_local)

    @property
    def received_words(self) -> float:
        """Upper bound, at two bits per element and trit."""
        return (self.num_members - 1) * self.num_trits * (3 + self.num_words(streams.BASE))

    def expected_words(self, nonzero_share: float) -> float:
        words = self.num_words(streams.BASE)
        return (self.num_members - 1) * streams.expected_length(
            words, nonzero_share, self.num_local
        )

    def work(self, nonzero_share: float) -> float:
        shares = streams.trit_shares(nonzero_share, self.num_local)
        reading = (self.num_members - 1) * sum(map(streams.decompression, shares))
        return self._sending(shares) + reading

    def _sending(self, shares):
        """Returns the work of writing this member's sums, whose trits have these shares."""
        adding = 1.0 if self.num_local > 1 else 0.0
        return sum(map(streams.compression, shares)) + adding

    def sum(self, bucket: Any) -> Sums:
        if bucket.processes:
            words, received = streams.all_gather(bucket.processes, self.trits(bucket))
            weights = ternary.trit_values(self.num_trits) * self.num_members
            sums = bucket.decode(words, base=streams.BASE, weights=weights, total_bias=sum(weights))
        else:
            # As if each replica were a process.
            lengths = streams.lengths(tf.stack(bucket.words_of_replicas(streams.BASE)))
            received = (self.num_members - 1) * (streams.message_length(lengths[:, None]) + 1)
            sums = bucket.sum_codes()
        return Sums(sums, tf.cast(received, tf.float32))

    def trits(self, bucket: Any) -> tf.Tensor:
        """Returns the sums of this member's codes, int32 `[num_trits, W]`."""
        words = tf.stack(bucket.words_of_replicas(streams.BASE))
        return words if self.num_local == 1 else ternary.sum_to_trits(words, self.num_local)

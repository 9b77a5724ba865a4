"""Codes that are not 0, entropy-coded, to all members."""

from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.wires import streams
from terngrad_tf.distribute.wires.base import Wire


class Sparse(Wire):
    """Every member receives the streams of all others, as long as their codes need.

    The replicas of a member send a stream each: their words have no room for sums.
    """

    name = "sparse"
    has_fixed_size = False
    num_messages = 2

    @property
    def received_words(self) -> float:
        """The most that can be, as two bits an element are."""
        return (self.num_members - 1) * self.num_local * (2 + self.num_words(streams.BASE))

    def expected_words(self, nonzero_share: float) -> float:
        stream = streams.expected_length(self.num_words(streams.BASE), nonzero_share)
        return (self.num_members - 1) * self.num_local * (stream + 1)

    def sum(self, bucket: Any) -> Any:
        words = bucket.words_of_replicas(streams.BASE)
        if bucket.processes:
            words, received = streams.all_gather(bucket.processes, words)
            sums = bucket.decode(words, base=streams.BASE, total_bias=self.num_replicas)
        else:
            # What every replica would receive if it were a process.
            lengths = tf.stack([[tf.size(ternary.compress(w))] for w in words])
            received = (self.num_members - 1) * (streams.message_length(lengths) + 1)
            sums = bucket.sum_codes()
        return sums, tf.cast(received, tf.float32)

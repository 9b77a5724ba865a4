"""All-reduces words whose digits have room for the sum."""

from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange.wires.base import Sums, Wire


class AllReduce(Wire):
    """A stock all-reduce adds words in which no digit can carry into the next."""

    name = "allreduce"
    num_messages = 2

    @property
    def received_words(self) -> float:
        return 2 * (self.num_members - 1) * self.num_words(self.total_base) / self.num_members

    def sum(self, bucket: Any) -> Sums:
        words = bucket.processes.all_reduce_sum(bucket.words(self.total_base))
        words = words[tf.newaxis]
        sums = bucket.decode(words, base=self.total_base, total_bias=self.total_bias)
        return Sums(sums, self.received_words)

"""Sends all words to all members."""

from typing import Any

from terngrad_tf.distribute.exchange.wires.base import Sums, Wire


class AllGather(Wire):
    """Every member receives the words of all others, and adds while it decodes."""

    name = "allgather"
    num_messages = 1

    @property
    def received_words(self) -> float:
        return (self.num_members - 1) * self.num_words(self.local_base)

    def work(self, nonzero_share: float) -> float:
        del nonzero_share
        return 0.3 * (self.num_members - 1)

    def sum(self, bucket: Any) -> Sums:
        words = bucket.processes.all_gather(bucket.words(self.local_base))
        sums = bucket.decode(words, base=self.local_base, total_bias=self.total_bias)
        return Sums(sums, self.received_words)

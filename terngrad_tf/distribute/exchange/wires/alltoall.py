"""Lets each member add one chunk of all words."""

from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange.wires.base import Sums, Wire, fill_up


class AllToAll(Wire):
    """Chunk m of all words goes to member m, which adds them; the sums go to all."""

    name = "alltoall"
    num_messages = 2

    @property
    def sums_base(self) -> int:
        """Base of the words with the sums."""
        return self.total_base

    @property
    def chunk_words(self) -> int:
        """Words of the chunk that one member adds up."""
        return -(-self.num_words(self.local_base) // self.num_members)

    @property
    def received_words(self) -> float:
        digits = self.chunk_words * ternary.digits_per_word(self.local_base)
        sums = ternary.num_words(digits, self.sums_base)
        return (self.num_members - 1) * (self.chunk_words + sums)

    def work(self, nonzero_share: float) -> float:
        del nonzero_share
        return 2.0

    def sum(self, bucket: Any) -> Sums:
        received = bucket.processes.all_to_all(self.chunks(bucket.words(self.local_base)))
        sums = ternary.reduce_chunk(received, self.local_base, base_out=self.sums_base)
        sums = bucket.processes.all_gather(sums)
        return Sums(self.decode(bucket, sums, total_bias=self.total_bias), self.received_words)

    def chunks(self, words: tf.Tensor) -> Any:
        """`[W]` -> `[members, chunk_words]`, padded with words of codes that are 0."""
        padded = fill_up(
            words,
            self.num_members * self.chunk_words,
            self.local_base,
            digit=self.num_local * self.levels,
        )
        # Not as int32, which TensorFlow reshapes in the memory of a GPU's host.
        chunks = tf.reshape(tf.bitcast(padded, tf.float32), [self.num_members, self.chunk_words])
        return tf.bitcast(chunks, tf.int32)

    def decode(self, bucket: Any, sums: tf.Tensor, **options: Any) -> Any:
        """Returns the gradients from one row of sums per chunk."""
        return bucket.decode_chunks(
            sums,
            chunk_words=self.chunk_words,
            base_in=self.local_base,
            base_out=self.sums_base,
            **options,
        )

"""Entropy-coded codes, ternary on the way back, too."""

import dataclasses
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.wires import streams
from terngrad_tf.distribute.wires.base import Wire


class SparseBidirectional(Wire):
    """Each member adds one chunk, rounds it to ternary once more and sends it to all, in streams.

    Chunk m holds every M-th word, so that all chunks take about the same: layers differ.
    """

    name = "sparse_bidirectional"
    is_lossless = False
    has_fixed_size = False
    num_messages = 4

    @property
    def chunk_words(self) -> int:
        """Words of the chunk that one member adds up."""
        return -(-self.num_words(streams.BASE) // self.num_members)

    @property
    def received_words(self) -> float:
        """The most that can be, as two bits an element are."""
        return (self.num_members - 1) * (self.num_local + 1) * (2 + self.chunk_words)

    def expected_words(self, nonzero_share: float) -> float:
        # The mean of codes is not 0 as often as one of them, once it is rounded.
        stream = streams.expected_length(self.chunk_words, nonzero_share)
        lengths = self.num_members * self.num_local + 1
        return (self.num_members - 1) * ((self.num_local + 1) * stream + lengths)

    def sum(self, bucket: Any) -> Any:
        def requantize(received, owner):
            return bucket.requantize_chunk(
                received, stream=owner, base=streams.BASE, base_out=streams.BASE
            )

        chunks = [self.chunks(words) for words in bucket.words_of_replicas(streams.BASE)]
        processes = bucket.processes
        if processes:
            codes, received = streams.all_to_all(processes, chunks)
            sums, received_sums = streams.all_gather(processes, [requantize(codes, processes.rank)])
            received += received_sums
        else:
            # What every owner would do if each replica were a process.
            of_owners = tf.unstack(tf.stack(chunks, axis=1))
            sums = tf.stack([requantize(codes, owner) for owner, codes in enumerate(of_owners)])
            sent = [tf.reshape(c, [-1]) for c in (*chunks, sums)]
            *ways, way_back = (tf.cast(tf.size(ternary.compress(w)), tf.float32) for w in sent)
            # Not chunk by chunk, so without what they are filled up with.
            received = (1 - 1 / self.num_members) * (tf.add_n(ways) / len(ways) + way_back)
        words = tf.reshape(tf.transpose(sums), [-1])[: self.num_words(streams.BASE)]
        # A code stands for the mean of all replicas.
        scaled = dataclasses.replace(bucket, scales=self.num_replicas * bucket.scales)
        tensors = scaled.decode(words[tf.newaxis], base=streams.BASE, total_bias=1)
        return tensors, tf.cast(received, tf.float32)

    def chunks(self, words: tf.Tensor) -> Any:
        """`[W]` -> `[members, chunk_words]`, padded with words of codes that are 0."""
        padding = self.num_members * self.chunk_words - words.shape[0]
        zeros = ternary.pack(tf.ones([1], tf.int32), streams.BASE, padding=1)
        words = tf.concat([words, tf.repeat(zeros, padding)], 0)
        return tf.transpose(tf.reshape(words, [self.chunk_words, self.num_members]))

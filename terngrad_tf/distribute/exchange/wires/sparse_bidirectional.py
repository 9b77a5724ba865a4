"""Entropy-coded codes, with sums rounded to ternary."""

import dataclasses
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange.wires import streams
from terngrad_tf.distribute.exchange.wires.base import Sums
from terngrad_tf.distribute.exchange.wires.sparse_sums import SparseSums


class SparseBidirectional(SparseSums):
    """Like `SparseSums`, but each member rounds its sums to ternary again, without bias.

    Each replica of a member sends one stream.
    """

    name = "sparse_bidirectional"
    is_lossless = False

    @property
    def received_words(self) -> float:
        """Upper bound, at two bits per element."""
        return (self.num_members - 1) * (self.num_local + 1) * (2 + self.chunk_words)

    def expected_words(self, nonzero_share: float) -> float:
        # The rounded mean of codes is non-zero as often as one code.
        stream = streams.expected_length(self.chunk_words, nonzero_share)
        others = (self.num_members - 1) * self.num_local
        return (self.num_members - 1) * ((self.num_local + 1) * stream + others)

    def work(self, nonzero_share: float) -> float:
        writing = (self.num_local + 1 / self.num_members) * streams.compression(nonzero_share)
        reading = self.read_share * (self.num_local + 1) * streams.decompression(nonzero_share)
        return writing + reading

    def sum(self, bucket: Any) -> Sums:
        def requantize(received, owner):
            return bucket.requantize_chunk(
                received, owner, base=streams.BASE, base_out=streams.BASE
            )

        chunks = [self.chunks(words) for words in bucket.words_of_replicas(streams.BASE)]
        processes = bucket.processes
        if processes:
            codes, received = streams.all_to_all(processes, chunks)
            sums, received_sums = streams.all_gather(
                processes, requantize(codes, processes.rank)[tf.newaxis]
            )
            received += received_sums
        else:
            # As if each replica were a process.
            of_owners = tf.stack(chunks, axis=1)
            sums = tf.stack([requantize(codes, k) for k, codes in enumerate(tf.unstack(of_owners))])
            received = self.received_of(of_owners, sums[:, tf.newaxis])
        # A code stands for the mean of all replicas.
        scaled = dataclasses.replace(bucket, scales=self.num_replicas * bucket.scales)
        words = self.joined(sums)[tf.newaxis]
        tensors = scaled.decode(words, base=streams.BASE, total_bias=1)
        return Sums(tensors, tf.cast(received, tf.float32))

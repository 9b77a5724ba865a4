"""Rounded on the way back, too."""

import dataclasses
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.wires.alltoall import AllToAll


class Bidirectional(AllToAll):
    """As all-to-all, but each member rounds its sums to one code once more, without bias."""

    name = "bidirectional"
    is_lossless = False

    @property
    def sums_base(self) -> int:
        return 2 * self.levels + 1

    def sum(self, bucket: Any) -> Any:
        def requantize(received, owner):
            return bucket.requantize_chunk(
                received, stream=owner, base=self.local_base, base_out=self.sums_base
            )

        processes = bucket.processes
        if processes:
            received = processes.all_to_all(self.chunks(bucket.words(self.local_base)))
            sums = processes.all_gather(requantize(received, processes.rank))
        else:
            # What every owner would do if each replica were a process.
            words = [self.chunks(w) for w in bucket.words_of_replicas(self.local_base)]
            chunks = tf.unstack(tf.stack(words, axis=1))
            sums = tf.stack([requantize(chunk, owner) for owner, chunk in enumerate(chunks)])
        # A code stands for the mean of all replicas.
        scaled = dataclasses.replace(bucket, scales=self.num_replicas * bucket.scales)
        return self.decode(scaled, sums, total_bias=self.levels), self.received_words

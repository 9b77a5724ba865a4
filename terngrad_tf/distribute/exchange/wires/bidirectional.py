"""All-to-all with rounded sums."""

from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange.wires.alltoall import AllToAll


class Bidirectional(AllToAll):
    """Like all-to-all, but each member rounds its sums to codes again.

    The member also sends the scales of these codes, one for each tensor in its chunk.
    """

    name = "bidirectional"
    is_lossless = False

    @property
    def sums_base(self) -> int:
        return 2 * self.levels + 1

    @property
    def received_words(self) -> float:
        return super().received_words + (self.num_members - 1) * len(self.sizes)

    def work(self, nonzero_share: float) -> float:
        del nonzero_share
        return 2.5

    def sum(self, bucket: Any) -> Any:
        def requantize(received, owner):
            first, widths = self._tensors_of(owner)
            scales = bucket.sum_scales(received, widths, base=self.local_base)
            of_words = [tf.fill([w], s) for w, s in zip(widths, tf.unstack(scales), strict=True)]
            words = bucket.requantize_chunk(
                received,
                base=self.local_base,
                base_out=self.sums_base,
                stream=owner,
                scales=tf.concat(of_words, 0),
            )
            units = bucket.quantization.units(scales)
            units = tf.pad(units, [[first, len(self.sizes) - first - len(widths)]])
            message = tf.concat([tf.bitcast(words, tf.float32), units], 0)
            return tf.bitcast(message, tf.int32)

        processes = bucket.processes
        if processes:
            received = processes.all_to_all(self.chunks(bucket.words(self.local_base)))
            sums = processes.all_gather(requantize(received, processes.rank))
        else:
            # Compute the result of every owner, as if each replica were a process.
            words = [self.chunks(w) for w in bucket.words_of_replicas(self.local_base)]
            chunks = tf.unstack(tf.stack(words, axis=1))
            sums = tf.stack([requantize(chunk, owner) for owner, chunk in enumerate(chunks)])
        sums = tf.bitcast(sums, tf.float32)
        sums, units = tf.split(sums, [sums.shape[1] - len(self.sizes), len(self.sizes)], axis=1)
        how = {"total_bias": self.levels, "owner_scales": units}
        return self.decode(bucket, tf.bitcast(sums, tf.int32), **how), self.received_words

    def _tensors_of(self, owner):
        """Returns the first tensor with codes in a chunk, and the words of each tensor in it."""
        widths = [ternary.num_words(size, self.local_base) for size in self.sizes]
        widths[-1] += self.num_members * self.chunk_words - sum(widths)
        ends = np.cumsum(widths)
        chunk = owner * self.chunk_words, (owner + 1) * self.chunk_words
        held = np.clip(ends, *chunk) - np.clip(ends - widths, *chunk)
        tensors = np.flatnonzero(held).tolist() or [0]
        return tensors[0], held[tensors[0] : tensors[-1] + 1].tolist()

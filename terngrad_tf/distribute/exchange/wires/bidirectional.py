"""All-to-all with rounded sums."""

from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange.wires.alltoall import AllToAll
from terngrad_tf.distribute.exchange.wires.base import Sums


class Bidirectional(AllToAll):
    """Like all-to-all, but each member rounds its sums to codes again.

    It also sends a scale for each tensor in its chunk, and for rotated gradients the error of
    rounding, which is subtracted from second moments.
    """

    name = "bidirectional"
    is_lossless = False

    @property
    def sums_base(self) -> int:
        return 2 * self.levels + 1

    @property
    def received_words(self) -> float:
        return super().received_words + (self.num_members - 1) * self._num_rows * len(self.sizes)

    @property
    def _num_rows(self) -> int:
        """Numbers that a member sends for each tensor, besides codes."""
        return 1 if self.num_scales is None else 2

    def work(self, nonzero_share: float) -> float:
        del nonzero_share
        # The last part computes the errors of a chunk.
        return 2.5 + (self._num_rows - 1) * 2 / self.num_members

    def sum(self, bucket: Any) -> Sums:
        def requantize(received, owner):
            first, widths = self._tensors_of(owner)
            scales = bucket.sum_scales(received, widths, base=self.local_base)
            of_words = [tf.fill([w], s) for w, s in zip(widths, tf.unstack(scales), strict=True)]
            of_words = tf.concat(of_words, 0)
            words = bucket.requantize_chunk(
                received,
                owner,
                base=self.local_base,
                base_out=self.sums_base,
                scales=of_words,
            )
            rows = [bucket.quantization.units(scales)]
            if self._num_rows > 1:
                rows.append(bucket.sum_errors(received, widths, of_words, base=self.local_base))
            others = [first, len(self.sizes) - first - len(widths)]
            rows = [tf.pad(row, [others]) for row in rows]
            return tf.bitcast(tf.concat([tf.bitcast(words, tf.float32), *rows], 0), tf.int32)

        processes = bucket.processes
        if processes:
            received = processes.all_to_all(self.chunks(bucket.words(self.local_base)))
            sums = processes.all_gather(requantize(received, processes.rank))
        else:
            # As if each replica were a process.
            words = [self.chunks(w) for w in bucket.words_of_replicas(self.local_base)]
            chunks = tf.unstack(tf.stack(words, axis=1))
            sums = tf.stack([requantize(chunk, owner) for owner, chunk in enumerate(chunks)])
        sums = tf.bitcast(sums, tf.float32)
        lengths = [len(self.sizes)] * self._num_rows
        sums, units, *errors = tf.split(sums, [sums.shape[1] - sum(lengths), *lengths], axis=1)
        how = {"total_bias": self.levels, "owner_scales": units}
        tensors = self.decode(bucket, tf.bitcast(sums, tf.int32), **how)
        return Sums(tensors, self.received_words, *map(self._means, errors))

    def _means(self, errors):
        """Returns the mean error of a tensor's elements, `[T]`, from sums by owner and tensor."""
        sizes = np.maximum(self.sizes, 1)
        return tf.reduce_sum(errors, 0) * tf.constant(1 / sizes, tf.float32)

    def _tensors_of(self, owner):
        """Returns the first tensor with codes in a chunk, and the words of each tensor in it."""
        widths = [ternary.num_words(size, self.local_base) for size in self.sizes]
        widths[-1] += self.num_members * self.chunk_words - sum(widths)
        ends = np.cumsum(widths)
        chunk = owner * self.chunk_words, (owner + 1) * self.chunk_words
        held = np.clip(ends, *chunk) - np.clip(ends - widths, *chunk)
        tensors = np.flatnonzero(held).tolist() or [0]
        return tensors[0], held[tensors[0] : tensors[-1] + 1].tolist()

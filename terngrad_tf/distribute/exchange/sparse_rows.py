"""Sums sparse gradients over replicas as rounded rows, or as whole rounded tensors.

Rows, with positions, travel if they take fewer bytes than the whole weight by the same codes. In
every step members agree on the largest number of rows and pad to it, so all choose alike. A whole
weight then has finer codes: rows of one length share a scale, but its blocks mix rows.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange.buckets import Bucket, ReductionContext, reduce_bucket
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES
from terngrad_tf.distribute.steps.slices import distinct_rows
from terngrad_tf.quantization_options import SYMBOL_BITS
from terngrad_tf.ternary import block_sizes, rows, sum_in_order

_PADDING = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The sparse gradients of one weight.

    Attributes:
        quantization: rounds rows, and rotates them; whole tensors have codes of `SYMBOL_BITS`.
        wire: wire of whole tensors.
        gradients: `tf.IndexedSlices` of each local replica, of a static shape.
        index: integer that selects the random bits.
    """

    context: ReductionContext
    quantization: Quantization
    wire: str
    gradients: Sequence[tf.IndexedSlices]
    index: int
    step: tf.Tensor

    @property
    def shape(self) -> tf.TensorShape:
        return self.gradients[0].shape

    @property
    def size(self) -> int:
        return self.shape.num_elements()

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self.size // self.shape[0]

    @property
    def members(self) -> list[tuple[int, list[tf.IndexedSlices]]]:
        """Numbers and gradients of the members in this process."""
        if self.context.processes:
            return [(self.context.processes.rank, list(self.gradients))]
        return [(number, [own]) for number, own in enumerate(self.gradients)]

    def whole_bytes(self, quantization: Quantization) -> int:
        """Bytes that a member receives if whole tensors travel by these codes."""
        return self.context.wire(self.wire, [self.size], quantization).traffic.received_bytes

    def row_words(self, count: Any) -> Any:
        """Words of a member's message of `count` rows."""
        return count + rows.num_row_words(count, self.width, self.quantization.levels)

    def distinct_rows(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Sums rows with the same position of each member.

        Returns:
            Positions, int32 `[n]`, and rows, float32 `[n, width]`, longest first, of each member of
            this process.
        """
        distinct = []
        for _, gradients in self.members:
            # Multiples of the number of rows distinguish positions of several lookups.
            positions = tf.concat([tf.cast(g.indices, tf.int64) for g in gradients], 0)
            positions = tf.cast(positions % self.shape[0], tf.int32)
            values = [tf.cast(g.values, tf.float32) for g in gradients]
            values = [tf.reshape(v, tf.stack([tf.shape(v)[0], self.width])) for v in values]
            positions, summed = distinct_rows(positions, tf.concat(values, 0))
            lengths = tf.reduce_sum(tf.square(summed), 1)
            order = tf.argsort(lengths, direction="DESCENDING", stable=True)
            distinct.append((tf.gather(positions, order), tf.gather(summed, order)))
        return distinct

    def sum_rows(self, distinct: Sequence[tuple[Any, Any]], count: tf.Tensor) -> Any:
        """Sums rounded rows of all members.

        `count` is the largest number of rows of a member.

        Returns:
            Distinct positions, int32 `[n]`, and rows, float32 `[n, width]`.
        """
        how = {
            "levels": self.quantization.levels,
            "seed": self.quantization.seed,
            "step": self.step,
            "tensor": self.quantization.indices_of_vectors(self.index, 1)[0],
        }
        messages = []
        for (number, _), (positions, values) in zip(self.members, distinct, strict=True):
            missing = [[0, count - tf.size(positions)]]
            positions = tf.pad(positions, missing, constant_values=_PADDING)
            values = tf.pad(values, missing + [[0, 0]])
            words = rows.encode_rows(values, member=number, **how)
            messages.append(tf.concat([positions, words], 0))
        if self.context.processes:
            messages = self.context.processes.all_gather(messages[0])
        else:
            messages = tf.stack(messages)
        members = self.context.num_members
        messages = tf.ensure_shape(messages, [members, None])
        values = rows.decode_rows(messages[:, count:], count, self.width, **how)
        positions = messages[:, :count]
        flat = tf.reshape(positions, [members * count])
        positions, place = tf.unique(flat)
        place = tf.reshape(place, tf.stack([members, count]))
        # By member: sums of one call have no fixed order on GPUs, and processes need the same bits.
        total = sum_in_order(
            [
                tf.math.unsorted_segment_sum(values[k], place[k], tf.size(positions))
                for k in range(members)
            ]
        )
        is_real = positions != _PADDING
        return tf.boolean_mask(positions, is_real), tf.boolean_mask(total, is_real)

    def sum_whole(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Sums whole rounded tensors; returns the sum `[rows, width]` and its `Bucket.noise`."""
        context, quantization = self.context, self.quantization.finer(SYMBOL_BITS)
        dense, measured = [], []
        for device, gradient in zip(context.devices, self.gradients, strict=True):
            with tf.device(device):
                positions = tf.cast(gradient.indices, tf.int64) % self.shape[0]
                values = tf.cast(gradient.values, tf.float32)
                total = tf.math.unsorted_segment_sum(values, positions, self.shape[0])
                total = tf.ensure_shape(total, self.shape)
                dense.append([total])
                measured.append(quantization.local_scales([total], context.num_replicas))
        bucket = Bucket(
            context=context,
            quantization=quantization,
            gradients=dense,
            measured=measured,
            indices=[self.index],
            step=self.step,
        )
        (sums,), _, noise = reduce_bucket(bucket.with_shared_scales(), self.wire)
        return tf.reshape(sums[0], [self.shape[0], self.width]), noise[0] if noise else None


def reduce_tables(tables: Sequence[Table]) -> tuple[list[Any], list[Any], Any]:
    """Sums the sparse gradients of several weights over all replicas, on the first local device.

    Returns:
        Distinct positions and rows of each sum, in the gradients' types; the variance that rounding
        added to whole tensors, `[blocks]`, 0 for rows; this member's received bytes, an int64
        scalar tensor.
    """
    context = tables[0].context
    with tf.device(context.devices[0]):
        distinct = [table.distinct_rows() for table in tables]
        counts = [
            tf.reduce_max([tf.size(positions) for positions, _ in of_members])
            for of_members in distinct
        ]
        counts = tf.stack(counts)
        if context.processes:
            counts = tf.reduce_max(context.processes.all_gather(counts), 0)
        # At least one row, since members without examples have none.
        counts = tf.maximum(counts, 1)
        others = context.num_members - 1
        received = tf.constant(WORD_BYTES * others * len(tables), tf.int64)
        sums, noise = [], []
        for table, of_members, count in zip(tables, distinct, tf.unstack(counts), strict=True):
            row_bytes = WORD_BYTES * others * table.row_words(tf.cast(count, tf.int64))
            is_rows = row_bytes <= table.whole_bytes(table.quantization)
            positions, values, of_blocks = tf.cond(
                is_rows,
                lambda table=table, own=of_members, count=count: _by_rows(table, own, count),
                lambda table=table: _whole(table),
            )
            whole_bytes = table.whole_bytes(table.quantization.finer(SYMBOL_BITS))
            received += tf.where(is_rows, row_bytes, whole_bytes)
            first = table.gradients[0]
            values = tf.cast(values, first.dtype)
            values = tf.reshape(values, tf.stack([tf.size(positions), *table.shape[1:]]))
            sums.append((tf.cast(positions, first.indices.dtype), values))
            noise.append(of_blocks)
        return sums, noise, received


def _by_rows(table, distinct, count):
    positions, values = table.sum_rows(distinct, count)
    return positions, values, tf.zeros([len(block_sizes(table.size))])


def _whole(table):
    total, noise = table.sum_whole()
    return tf.range(table.shape[0]), total, noise

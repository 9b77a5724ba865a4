"""Sums of replicas' ternary codes where nothing travels: rounded and added, never packed."""

import functools

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import blocks, compiled, layout, quantizer, random_bits

# Replicas whose gradients one loop reads. The sums are read and written once a loop, the random
# words made once; more would only take longer to compile.
_REPLICAS_OF_A_LOOP = 8


def sum_codes(
    gradients,
    scales,
    *,
    seed,
    step,
    replicas,
    num_replicas: int,
    rounding: str = "correlated",
    tensors=None,
) -> list[tf.Tensor]:
    """Ternarizes the gradients of several replicas and adds the codes.

    Every tensor is rounded as by `ternarize`: this is what `decode` of the replicas' words gives
    before it multiplies by the scales.

    Args:
        gradients: list of K lists of T float16, bfloat16 or float32 tensors, one list a replica;
            static shapes, the same for all replicas.
        scales: float32 tensor of shape [T], the scales shared by all replicas.
        seed: Python integer or scalar integer tensor.
        step: training step, Python integer or scalar int32/int64 tensor.
        replicas: K numbers in 0..num_replicas-1, Python integers or scalar int32 tensors.
        num_replicas: N.
        rounding: one of `ROUNDINGS`.
        tensors: T integers that select the random sequence of each tensor. Default 0..T-1.

    Returns:
        List of T int32 tensors in -K..K.

    Raises:
        ValueError: an argument is out of range or a shape is not static.

    Example:
    >>> sums = sum_codes([[tf.ones([3])], [tf.ones([3])]], tf.ones([1]), seed=0, step=0,
    ...                  replicas=[0, 1], num_replicas=2)
    >>> sums[0].numpy().tolist()
    [2, 2, 2]
    """
    quantizer.check_rounding(rounding, num_replicas)
    shapes = tuple(compiled.static_shape(g, "gradients") for g in gradients[0])
    dtypes = tuple(g.dtype for g in gradients[0])
    tensors = range(len(shapes)) if tensors is None else tensors
    if not shapes:
        return []
    pieces = _Pieces(shapes)
    numbers = (
        tf.cast(scales, tf.float32),
        tf.constant(list(tensors), tf.int32),
        compiled.scalar(seed, tf.int64),
        compiled.scalar(step, tf.int64),
    )
    totals = [tf.zeros([rows, blocks.ROW], tf.int32) for rows in pieces.rows]
    for start in range(0, len(gradients), _REPLICAS_OF_A_LOOP):
        members = slice(start, start + _REPLICAS_OF_A_LOOP)
        ids = [compiled.scalar(replica, tf.int32) for replica in replicas[members]]
        run = _adder(shapes, dtypes, len(ids), num_replicas, rounding)
        totals = run(totals, [list(g) for g in gradients[members]], numbers, ids)
    return pieces.tensors(totals)


class _Pieces:
    """Tensors cut into whole rows: those of each large tensor, and all the rest side by side.

    Args:
        shapes: T static shapes.
    """

    def __init__(self, shapes):
        self._shapes = shapes
        self._sizes = [layout.num_elements(shape) for shape in shapes]
        self.large, _ = layout.split(shapes)
        # What is left of a large tensor after its last whole row is short.
        self._starts = [
            size - size % blocks.ROW if i in set(self.large) else 0
            for i, size in enumerate(self._sizes)
        ]
        self._lengths = np.subtract(self._sizes, self._starts)
        rows = -(-int(self._lengths.sum()) // blocks.ROW)
        self._padding = rows * blocks.ROW - int(self._lengths.sum())
        self.rows = [self._starts[i] // blocks.ROW for i in self.large] + [rows] * (rows > 0)

    def cut(self, tensors):
        """Float tensors to a list of tensors `[rows, ROW]`, as many as `rows`."""
        flat = [tf.reshape(tensor, [-1]) for tensor in tensors]
        result = [tf.reshape(flat[i][: self._starts[i]], [-1, blocks.ROW]) for i in self.large]
        if len(self.rows) > len(self.large):
            rest = [
                tf.cast(f[start:], tf.float32) for f, start in zip(flat, self._starts, strict=True)
            ]
            rest.append(tf.zeros([self._padding], tf.float32))
            result.append(tf.reshape(tf.concat(rest, 0), [-1, blocks.ROW]))
        return result

    def by_element(self, values):
        """`[T]` values, one a tensor, to the elements of the last piece, `[rows, ROW]`."""
        positions = np.repeat(np.arange(len(self._sizes), dtype=np.int32), self._lengths)
        return tf.reshape(
            tf.gather(values, np.pad(positions, (0, self._padding))), [-1, blocks.ROW]
        )

    def elements(self):
        """uint32 element numbers of the last piece within their tensors, `[rows, ROW]`."""
        numbers = [
            np.arange(start, size, dtype=np.uint32)
            for start, size in zip(self._starts, self._sizes, strict=True)
        ]
        numbers = np.pad(np.concatenate(numbers), (0, self._padding))
        return tf.constant(numbers.reshape([-1, blocks.ROW]))

    def tensors(self, pieces):
        """Inverse of `cut` for int32 pieces."""
        mains = dict(zip(self.large, pieces, strict=False))
        rest = tf.zeros([0], tf.int32)
        if len(self.rows) > len(self.large):
            rest = tf.reshape(pieces[-1], [-1])
        offsets = np.concatenate([[0], np.cumsum(self._lengths)])
        result = []
        for i, shape in enumerate(self._shapes):
            flat = rest[int(offsets[i]) : int(offsets[i + 1])]
            if i in mains:
                main = tf.reshape(mains[i], [-1])
                flat = tf.concat([main, flat], 0) if self._lengths[i] else main
            result.append(tf.reshape(flat, shape))
        return result


@functools.cache
def _adder(shapes, dtypes, count, num_replicas, rounding):
    """The function that adds the codes of `count` replicas to sums, in one loop a piece."""
    del dtypes  # They select the trace.
    pieces = _Pieces(shapes)
    has_rest = len(pieces.rows) > len(pieces.large)

    def by_tensor(numbers, replica):
        scales, tensors, seed, step = numbers
        stream = quantizer.rounding_stream(rounding, replica)
        return *random_bits.key_schedule(seed, step, tensors, stream), quantizer.quantization_step(
            scales
        )

    # Apart from the loop, so that XLA does not look values up again for every replica.
    @compiled.compiled
    def by_element(numbers, replica):
        element_keys, mix_keys, units = map(pieces.by_element, by_tensor(numbers, replica))
        return element_keys + pieces.elements(), mix_keys, units

    @compiled.compiled
    def add(totals, gradients, rest, numbers, replicas):
        totals = list(totals)
        for k, replica in enumerate(replicas):
            offset = quantizer.replica_offset(rounding, replica, num_replicas)
            element_keys, mix_keys, units = by_tensor(numbers, replica)
            for p, i in enumerate(pieces.large):
                columns = blocks.columns(pieces.rows[p] * blocks.ROW) + element_keys[i]
                words = random_bits.fmix32(columns, mix_keys[i]) + offset
                gradient = tf.cast(gradients[k][p], tf.float32)
                totals[p] += quantizer.round_to_ternary(gradient, units[i], words)
            if has_rest:
                elements, key, unit = rest[k % len(rest)]
                words = random_bits.fmix32(elements, key) + offset
                totals[-1] += quantizer.round_to_ternary(gradients[k][-1], unit, words)
        return totals

    def run(totals, gradients, numbers, replicas):
        rest = []
        if has_rest:
            # With correlated rounding all replicas draw the same words.
            drawing = replicas[:1] if rounding == "correlated" else replicas
            rest = [by_element(numbers, replica) for replica in drawing]
        return add(totals, [pieces.cut(g) for g in gradients], rest, numbers, replicas)

    return tf.function(run, autograph=False)

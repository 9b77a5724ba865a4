"""Compresses codes that are mostly zero, by Elias-Fano coding of the others.

The words of `encode` in base 4 are cut into units of 64, 16 or 8 elements. A stream holds, in bytes
padded to whole words,

    header     two words: 1 for units of 8, 2 of 16, 3 of 64, 0 if the plain words follow; and the
               number of bytes of the levels and the rest of the first half of the units
    bitmap     one bit per unit: whether it holds a nonzero code

and then, for each half of the units (two threads compute the halves in parallel),

    level 1    for the first nonzero code of each used unit: its place in the unit, whether it is
               positive, and whether the unit holds more
    level 2-6  the same for the second to sixth, of the units that hold enough
    rest       all other codes of the units that hold more than six, in 2 bits per element

These are the two halves of Elias-Fano coding, but level by level, so that every step is a vector
operation. If a share p of the codes is nonzero, an element takes `1/w + p (log2 w + 2)` bits in
units of w.

The size depends on the data, which does not suit accelerators: compression runs on the host's CPU.

Source: P. Elias, Efficient storage and retrieval by content and address of static files, Journal of
the ACM 21(2), 1974.
"""

import functools

import tensorflow as tf

from terngrad_tf.ternary.fused import compiled
from terngrad_tf.ternary.fused.streams.sparse_units import MULTIPLE, SIZES, ZEROS

_LEVELS = 6
_HEADER_BYTES = 8

_and, _or, _xor = tf.bitwise.bitwise_and, tf.bitwise.bitwise_or, tf.bitwise.bitwise_xor
_left, _right = tf.bitwise.left_shift, tf.bitwise.right_shift


def compress(words: tf.Tensor) -> tf.Tensor:
    """Compresses words in base 4 to a stream, without loss.

    Args:
        words: int32 tensor [W], W static: result of `encode` with `base=4`.

    Returns:
        int32 tensor, as long as the data needs.

    Raises:
        ValueError: the shape of `words` is not static.

    Example:
    >>> words = pack(tf.ones([1600], tf.int32), 4)  # codes that are 0
    >>> compress(words).shape, decompress(compress(words), 100).shape
    (TensorShape([3]), TensorShape([100]))
    """
    words = tf.convert_to_tensor(words)
    (size,) = compiled.static_shape(words, "words")
    with tf.device("CPU:0"):
        return _compressor(size)(words)


def decompress(stream: tf.Tensor, num_words: int) -> tf.Tensor:
    """Inverse of `compress`.

    Args:
        stream: int32 vector; elements after the stream are ignored.
        num_words: W.

    Returns:
        int32 tensor [W].
    """
    with tf.device("CPU:0"):
        words = _decompressor(num_words)(tf.convert_to_tensor(stream))
        return tf.ensure_shape(words, [num_words])


@functools.cache
def _compressor(size):
    def run(words):
        words = tf.pad(words, [[0, -size % MULTIPLE]], constant_values=ZEROS)
        plain = tf.pad(words, [[2, 0]])
        if not size:
            return plain
        # Bits per word: plain, or in units of each size.
        codes = _codes_a_word(words)
        bits = [32.0, *(u.count(MULTIPLE) / MULTIPLE + u.code_bits * codes for u in SIZES)]
        branches = [functools.partial(_compress, words, header) for header in (1, 2, 3)]
        shortest = tf.argmin(tf.stack(bits), output_type=tf.int32)
        stream = tf.switch_case(shortest, [lambda: plain, *branches])
        return tf.cond(tf.size(stream) < tf.size(plain), lambda: stream, lambda: plain)

    return tf.function(run, autograph=False)


@compiled.compiled
def _codes_a_word(words):
    """Estimates the nonzero codes per word from every seventh word; layers and columns differ."""
    some = _xor(words[::7], tf.constant(ZEROS, tf.int32))
    counts = tf.raw_ops.PopulationCount(x=_and(some, tf.constant(ZEROS, tf.int32)))
    return tf.reduce_mean(tf.cast(counts, tf.float32))


def _compress(words, kind):
    units = SIZES[kind - 1]
    bitmap, is_used, levels, rest = _levels_of(units)(words)
    num_units = units.count(words.shape[0])
    halves = []
    for half in (slice(num_units // 2), slice(num_units // 2, num_units)):
        positions = _positions(is_used[half])
        parts = []
        for level in range(_LEVELS):
            codes = tf.gather(levels[level][half], positions)
            parts.append(units.pack(codes))
            positions = tf.gather(positions, _positions(units.has_more(codes)))
        parts.append(_bytes(tf.gather(rest[half], positions)))
        halves.append(tf.concat(parts, 0))
    header = tf.stack([kind, tf.size(halves[0])])
    stream = tf.concat([_bytes(header), bitmap, *halves], 0)
    stream = tf.pad(stream, [[0, -tf.size(stream) % 4]])
    return tf.bitcast(tf.reshape(stream, [-1, 4]), tf.int32)


@functools.cache
def _levels_of(units):
    """Returns a function to the bitmap, used units, levels of first codes, and all other codes."""

    @compiled.compiled
    def run(words):
        present, positive = units.from_words(words)
        is_used = present != units.constant(0)
        bits = tf.unstack(tf.cast(tf.reshape(is_used, [8, -1]), tf.uint8))
        bitmap = functools.reduce(
            _or, (_left(plane, tf.constant(j, tf.uint8)) for j, plane in enumerate(bits))
        )
        levels = []
        for _ in range(_LEVELS):
            lowest = _and(present, tf.bitwise.invert(present) + units.constant(1))
            is_positive = tf.cast(_and(positive, lowest) != units.constant(0), tf.uint8)
            present = _xor(present, lowest)
            has_more = tf.cast(present != units.constant(0), tf.uint8)
            code = _or(units.place(lowest), _left(is_positive, tf.constant(units.log2, tf.uint8)))
            levels.append(_or(code, _left(has_more, tf.constant(units.log2 + 1, tf.uint8))))
        return bitmap, is_used, levels, units.join(present, _and(positive, present))

    return run


def _positions(flags):
    """Returns the positions of true flags `[n]` as int32."""
    return tf.cast(tf.reshape(tf.where(flags), [-1]), tf.int32)


def _bytes(integers):
    """Reinterprets unsigned integers as flat uint8."""
    return tf.reshape(tf.bitcast(integers, tf.uint8), [-1])


@functools.cache
def _decompressor(size):
    num_words = size + -size % MULTIPLE

    def run(stream):
        branches = [functools.partial(tf.identity, stream[2 : 2 + num_words])]
        branches += [
            functools.partial(_decompress, _bytes(stream), stream[1], units, num_words)
            for units in SIZES
        ]
        return tf.switch_case(stream[0], branches)[:size]

    # One trace for streams of all lengths.
    return tf.function(run, [tf.TensorSpec([None], tf.int32)], autograph=False)


def _decompress(stream, first_bytes, units, num_words):
    num_units = units.count(num_words)
    bitmap = tf.slice(stream, [_HEADER_BYTES], [num_units // 8])
    is_used = tf.split(_bits()(bitmap), 2)
    start = _HEADER_BYTES + num_units // 8
    halves = [
        _decompress_half(stream[begin:], used, units)
        for begin, used in zip((start, start + first_bytes), is_used, strict=True)
    ]
    return _to_words(units)(tf.concat(halves, 0))


def _decompress_half(stream, is_used, units):
    """Returns the integers of one half's units, whose levels and rest start the stream."""
    positions, counts, integers, start = [_positions(is_used)], [is_used.shape[0]], [], 0
    for _ in range(_LEVELS):
        counts.append(tf.size(positions[-1]))
        codes, start = units.unpack(stream, start, counts[-1])
        integers.append(tf.gather(units.integers(), tf.cast(codes, tf.int32)))
        positions.append(_positions(units.has_more(codes)))
    count = tf.size(positions[-1])
    end = start + count * units.planes * units.dtype.size
    rest = tf.reshape(stream[start:end], [count, units.planes, units.dtype.size])
    total = tf.bitcast(rest, units.dtype)
    for level in reversed(range(_LEVELS)):
        spread = tf.math.unsorted_segment_sum(total, positions[level + 1], counts[level + 1])
        total = integers[level] + spread
    return tf.math.unsorted_segment_sum(total, positions[0], counts[0])


@functools.cache
def _bits():
    @compiled.compiled
    def run(octets):
        one = tf.constant(1, tf.uint8)
        planes = [_and(_right(octets, tf.constant(j, tf.uint8)), one) for j in range(8)]
        return tf.reshape(tf.stack(planes), [-1]) == one

    return run


@functools.cache
def _to_words(units):
    return compiled.compiled(units.to_words)

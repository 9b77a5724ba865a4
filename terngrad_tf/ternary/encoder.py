"""Gradients to packed words, in one pass under XLA."""

import functools

import tensorflow as tf

from terngrad_tf.ternary import codec, compiled, quantizer, random_bits

_SUPPORTED = (tf.float16, tf.bfloat16, tf.float32)


def encode(
    gradients,
    scales,
    *,
    seed,
    step,
    worker,
    num_workers: int,
    rounding: str = "correlated",
    base: int = 3,
    tensors=None,
) -> tf.Tensor:
    """Ternarizes a list of tensors and packs the codes into one buffer.

    Every tensor is rounded as by `ternarize` and its digits, code + 1, are packed as by
    `pack(digits, base, padding=1)`; the words of the tensors follow each other in list order.
    With `base = 2 * n + 1` the words of n workers can be added as int32: no digit carries into the
    next, and `decode` with `total_bias=n` gives the sum of the n gradients.

    Args:
        gradients: list of T float16, bfloat16 or float32 tensors with static shapes.
        scales: float32 tensor of shape [T], the scales shared by all workers.
        seed: Python integer or scalar integer tensor.
        step: training step, Python integer or scalar int32/int64 tensor.
        worker: k in 0..num_workers-1, Python integer or scalar int32 tensor.
        num_workers: N.
        rounding: one of `ROUNDINGS`.
        base: number of values of a digit, at least 3.
        tensors: T integers that select the random sequence of each tensor. Default 0..T-1.

    Returns:
        int32 tensor of shape [sum of num_words(n_t, base)].

    Raises:
        ValueError: an argument is out of range or a shape is not static.
        TypeError: a gradient is not of a supported type.

    Example:
    >>> encode([tf.ones([40]), tf.zeros([3])], tf.ones([2]), seed=0, step=0, worker=0,
    ...        num_workers=1).shape
    TensorShape([3])
    """
    quantizer.check_rounding(rounding, num_workers)
    codec.check_base(base)
    if base < 3:
        raise ValueError(f"`base` must be at least 3 for ternary codes. Received: base={base}")
    gradients = [tf.convert_to_tensor(g) for g in gradients]
    for gradient in gradients:
        if gradient.dtype not in _SUPPORTED:
            raise TypeError(
                "`gradients` must be float16, bfloat16 or float32."
                f" Received: dtype={gradient.dtype.name}"
            )
    tensors = range(len(gradients)) if tensors is None else tensors
    if len(tensors) != len(gradients):
        raise ValueError(
            f"`tensors` must have one entry a gradient ({len(gradients)}). Received: {len(tensors)}"
        )
    if not gradients:
        return tf.zeros([0], tf.int32)
    shapes = tuple(compiled.static_shape(g, "gradients") for g in gradients)
    run = _encoder(shapes, tuple(g.dtype for g in gradients), num_workers, rounding, base)
    return run(
        gradients,
        tf.cast(scales, tf.float32),
        tf.constant(list(tensors), tf.int32),
        compiled.scalar(seed, tf.int64),
        compiled.scalar(step, tf.int64),
        compiled.scalar(worker, tf.int32),
    )


@functools.cache
def _encoder(shapes, dtypes, num_workers, rounding, base):
    del shapes, dtypes  # They select the trace.

    def run(gradients, scales, tensors, seed, step, worker):
        stream = quantizer.rounding_stream(rounding, worker)
        element_salts, middle_salts = random_bits.salts(seed, step, tensors, stream)
        offset = quantizer.worker_offset(rounding, worker, num_workers)
        scales = quantizer.usable_scale(scales)
        words = [
            _encode_one(g, scales[i], element_salts[i], middle_salts[i], offset, base)
            for i, g in enumerate(gradients)
        ]
        return tf.bitcast(tf.concat(words, 0), tf.int32)

    return compiled.compiled(run)


def _encode_one(gradient, scale, element_salt, middle_salt, offset, base):
    size = gradient.shape.num_elements()
    count, width = codec.digits_per_word(base), codec.num_words(size, base)
    flat = tf.reshape(gradient, [-1])
    column = tf.range(width)
    planes = []
    for digit in range(count):
        piece = flat[digit * width : (digit + 1) * width]
        piece = tf.pad(piece, [[0, width - piece.shape[0]]])
        elements = tf.cast(column + digit * width, tf.uint32)
        words = random_bits.hash_elements(elements, element_salt, middle_salt) + offset
        codes = quantizer.round_to_ternary(tf.cast(piece, tf.float32), scale, words)
        planes.append(tf.cast(codes + 1, tf.uint32))
    return codec.join_planes(planes, base)

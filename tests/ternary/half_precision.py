"""Which half precisions this machine's XLA can compile."""

import functools

import tensorflow as tf

DTYPES = (tf.float16, tf.bfloat16)


@functools.cache
def compiles(dtype):
    """Whether XLA compiles a dtype: no float16 where it is told to use SSE4.2 alone."""
    cast = tf.function(lambda x: tf.cast(x, tf.float32) + 1, jit_compile=True, autograph=False)
    try:
        cast(tf.zeros([8], dtype))
    except tf.errors.InternalError:
        return False
    return True

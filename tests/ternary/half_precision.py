"""Half-precision dtypes that this machine's XLA can compile."""

import functools

import tensorflow as tf

DTYPES = (tf.float16, tf.bfloat16)


@functools.cache
def compiles(dtype):
    """Returns True if XLA compiles a dtype; limited to SSE4.2, it cannot compile float16."""
    cast = tf.function(lambda x: tf.cast(x, tf.float32) + 1, jit_compile=True, autograph=False)
    try:
        cast(tf.zeros([8], dtype))
    except tf.errors.InternalError:
        return False
    return True

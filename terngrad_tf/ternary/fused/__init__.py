"""The same maths as compiled loops: rounding, packing and adding in one pass over the gradients.

What each function computes is said by `ternary`'s readable modules; the tests compare them bit for
bit.
"""

from terngrad_tf.ternary.fused.chunks import reduce_chunk, requantize_chunk
from terngrad_tf.ternary.fused.code_sums import sum_codes
from terngrad_tf.ternary.fused.decoder import decode, decode_chunks
from terngrad_tf.ternary.fused.encoder import encode
from terngrad_tf.ternary.fused.scales import local_scales

__all__ = [
    "decode",
    "decode_chunks",
    "encode",
    "local_scales",
    "reduce_chunk",
    "requantize_chunk",
    "sum_codes",
]

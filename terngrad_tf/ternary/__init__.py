"""Ternary gradients as pure tensor maths: scales, random bits, rounding, packed words.

The modules of this package are the readable definition; `fused` computes the same faster.
"""

from terngrad_tf.ternary.codec import digits_per_word, num_words, pack, unpack
from terngrad_tf.ternary.fused.chunks import reduce_chunk, requantize_chunk, sum_scales
from terngrad_tf.ternary.fused.code_sums import sum_codes
from terngrad_tf.ternary.fused.decoder import decode, decode_chunks
from terngrad_tf.ternary.fused.encoder import encode
from terngrad_tf.ternary.fused.largest import largest_as_codes
from terngrad_tf.ternary.fused.rotation import Rotation
from terngrad_tf.ternary.fused.scales import local_scales
from terngrad_tf.ternary.fused.streams.sparse import compress, decompress
from terngrad_tf.ternary.fused.sum_errors import sum_errors
from terngrad_tf.ternary.fused.trits import num_trits, sum_to_trits, trit_values
from terngrad_tf.ternary.ordered_sum import sum_in_order
from terngrad_tf.ternary.quantizer import ROUNDINGS, ternarize
from terngrad_tf.ternary.random_bits import random_words
from terngrad_tf.ternary.rotation import block_sizes, mean_of_blocks, spread, value_of_code
from terngrad_tf.ternary.rounding_noise import noise_of_sums, rounding_noise
from terngrad_tf.ternary.scales import AUTO, ScaleRule, auto_factor, local_scale

__all__ = [
    "AUTO",
    "ROUNDINGS",
    "Rotation",
    "ScaleRule",
    "auto_factor",
    "block_sizes",
    "compress",
    "decode",
    "decode_chunks",
    "decompress",
    "digits_per_word",
    "encode",
    "largest_as_codes",
    "local_scale",
    "local_scales",
    "num_trits",
    "num_words",
    "pack",
    "random_words",
    "reduce_chunk",
    "requantize_chunk",
    "mean_of_blocks",
    "noise_of_sums",
    "rounding_noise",
    "spread",
    "sum_codes",
    "sum_errors",
    "sum_in_order",
    "sum_scales",
    "sum_to_trits",
    "ternarize",
    "trit_values",
    "unpack",
    "value_of_code",
]

"""Ternary gradients as pure tensor maths: scales, random bits, rounding, packed words.

The modules here are the readable definition; `fused` computes the same for speed.
"""

from terngrad_tf.ternary.codec import digits_per_word, num_words, pack, unpack
from terngrad_tf.ternary.fused import (
    decode,
    decode_chunks,
    encode,
    local_scales,
    reduce_chunk,
    requantize_chunk,
    sum_codes,
)
from terngrad_tf.ternary.quantizer import ROUNDINGS, ternarize
from terngrad_tf.ternary.random_bits import random_words
from terngrad_tf.ternary.scales import local_scale

__all__ = [
    "ROUNDINGS",
    "decode",
    "decode_chunks",
    "digits_per_word",
    "encode",
    "local_scale",
    "local_scales",
    "num_words",
    "pack",
    "random_words",
    "reduce_chunk",
    "requantize_chunk",
    "sum_codes",
    "ternarize",
    "unpack",
]

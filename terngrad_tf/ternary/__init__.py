"""Ternary gradients as pure tensor maths: scales, random bits, rounding, packed words."""

from terngrad_tf.ternary.code_sums import sum_codes
from terngrad_tf.ternary.codec import digits_per_word, num_words, pack, unpack
from terngrad_tf.ternary.decoder import decode, decode_sums
from terngrad_tf.ternary.encoder import encode
from terngrad_tf.ternary.quantizer import ROUNDINGS, ternarize
from terngrad_tf.ternary.random_bits import random_words
from terngrad_tf.ternary.scales import local_scale, local_scales
from terngrad_tf.ternary.sums import sum_to_words, ternarize_sums

__all__ = [
    "ROUNDINGS",
    "decode",
    "decode_sums",
    "digits_per_word",
    "encode",
    "local_scale",
    "local_scales",
    "num_words",
    "pack",
    "random_words",
    "sum_codes",
    "sum_to_words",
    "ternarize",
    "ternarize_sums",
    "unpack",
]

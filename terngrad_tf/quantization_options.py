"""The options that select gradients and their rounding, for `Quantization` and `GradientConfig`."""

import dataclasses
from typing import Any

from terngrad_tf import clip_factors
from terngrad_tf.common.arguments import check, is_integer
from terngrad_tf.common.options import check_options, documented, option

FLOAT_BITS = 32
GRAD_BITS = (*range(1, 9), FLOAT_BITS)
# Least bits of rotated gradients of symbols, and of gradients whose optimizer takes orthogonal
# steps, in which directions of noise are as long as all others.
SYMBOL_BITS, ORTHOGONAL_BITS = 4, 6
ROUNDINGS = ("correlated", "independent")
# Bits of an element: nearly the bits in a stream of zeros, and the bits in words.
BITS_RANGE = 0.02, 1.6


def _is_one_of(*values: Any) -> Any:
    def check_value(name, value):
        check(value in values, name, f"must be one of {values}", value)

    return check_value


def _is_bool(name, value):
    check(isinstance(value, bool), name, "must be a bool", value)


def _is_bool_or_none(name, value):
    check(isinstance(value, bool), name, "must be a bool or None", value)


def _is_grad_bits(name, value):
    rule = "must be 1 (ternary), 2 (five values), 3 to 8 (codes of so many bits) or 32 (float)"
    check(is_integer(value) and value in GRAD_BITS, name, rule, value)


def _is_bits_per_element(name, value):
    least, most = BITS_RANGE
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    rule = f"must be a number from {least} to {most}, or None"
    check(is_number and least <= value <= most, name, rule, value)


def _is_size(name, value):
    is_size = is_integer(value, 1) and value < 2**31
    check(is_size, name, "must be a positive integer below 2**31", value)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizationOptions:
    """Common options of `Quantization` and the programs' `GradientConfig`.

    Raises:
        ValueError: an argument is out of range.
    """

    grad_bits: int = option(
        1,
        "Bits of a gradient's element. 1: ternary gradients; 2: codes of five values, -2 to 2, "
        "which take 2.5 bits; b from 3 to 8: codes of b bits, integers from -(2**(b-1) - 1) to "
        "2**(b-1) - 1; 32: float gradients. With rotation, all gradients of Muon have at least 6; "
        "whole tables of embeddings, and a language model's embedding and last layer, 4.",
        _is_grad_bits,
    )
    rotate: bool | None = option(
        None,
        "If True, gradients are rotated before rounding, see `terngrad_tf.ternary.rotation`, so "
        "that the scales follow from grad_bits alone and suit all gradients. False is the rule of "
        "TernGrad's paper. None: True, but False with bits_per_element and for wires of streams.",
        _is_bool_or_none,
        before=False,
    )
    clip_factor: float | str | None = option(
        None,
        "Factor c of the scale min(c * std(g), max|g|); requires rotate=False. 0: no clipping; "
        "auto: a scale that weighs the loss of clipping against the noise of rounding, see "
        "`terngrad_tf.ternary.ScaleRule`. None: 2.5 for ternary gradients, auto for finer codes, "
        "which need less clipping.",
        clip_factors.check_factor,
    )
    bits_per_element: float | None = option(
        None,
        "Largest expected length of a replica's codes as a stream, from 0.02 to 1.6 bits an "
        "element: scales are raised until enough codes are 0, which keeps the mean and adds "
        "variance; with local steps the largest changes travel, and the rest later. Requires "
        "ternary gradients, which are then not rotated, and a wire of streams, which auto then "
        "selects. None: no limit.",
        _is_bits_per_element,
        before=None,
    )
    min_size: int = option(
        1,
        "Variables with fewer elements keep float gradients. 1: none does.",
        _is_size,
        name="size_to_binarize",
    )
    quantize_logits: bool = option(
        True,
        "If True, the gradients of the last layer are rounded, too. A variable belongs to this "
        "layer if a component of its path contains 'logits' and not 'aux'.",
        _is_bool,
        before=False,
    )
    rounding: str = option(
        "correlated",
        "correlated: replicas share their random numbers, for less variance; independent: as in "
        "TernGrad's paper.",
        _is_one_of(*ROUNDINGS),
        before="correlated",
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def levels(self) -> int:
        """L: codes are whole numbers from -L to L. 1 for ternary gradients, and for floats.

        Codes of 1 and 2 "bits" have three and five values, packed as digits in base 3 and 5: 1.6
        and 2.5 bits. From 3 bits on, codes have `2**bits - 1` values.

        Example:
        >>> [QuantizationOptions(grad_bits=bits).levels for bits in (1, 2, 3, 4, 8, 32)]
        [1, 2, 3, 7, 127, 1]
        """
        if self.grad_bits in (1, FLOAT_BITS):
            return 1
        return 2 if self.grad_bits == 2 else 2 ** (self.grad_bits - 1) - 1

"""Bits of what replicas send of a gradient's element: ternary codes, finer ones, or floats."""

FLOAT_BITS = 32
GRAD_BITS = (1, *range(3, 9), FLOAT_BITS)
# What errors say of other values.
RULE = (
    "must be 1 (ternary), 3 to 8 (codes of so many bits) or 32 (float); 2 bits would hold -1, 0 "
    "and 1, which is 1, ternary"
)


def levels_of_bits(grad_bits: int) -> int:
    """L of codes of so many bits, whole numbers from -L to L; 1 where there are none.

    Args:
        grad_bits: one of `GRAD_BITS`.

    Example:
    >>> [levels_of_bits(bits) for bits in (1, 3, 4, 8, 32)]
    [1, 3, 7, 127, 1]
    """
    return 1 if grad_bits in (1, FLOAT_BITS) else 2 ** (grad_bits - 1) - 1

"""Bits per element of exchanged gradients: ternary codes, finer ones, or floats."""

FLOAT_BITS = 32
GRAD_BITS = (*range(1, 9), FLOAT_BITS)
# Rule in errors.
RULE = "must be 1 (ternary), 2 (five values), 3 to 8 (codes of so many bits) or 32 (float)"


def levels_of_bits(grad_bits: int) -> int:
    """Returns L of codes with `grad_bits` bits, whole numbers from -L to L; 1 for floats.

    Codes of 1 and 2 "bits" have three and five values, packed as digits in base 3 and 5: 1.6 and
    2.5 bits. From 3 bits on, codes have `2**bits - 1` values.

    Args:
        grad_bits: one of `GRAD_BITS`.

    Example:
    >>> [levels_of_bits(bits) for bits in (1, 2, 3, 4, 8, 32)]
    [1, 2, 3, 7, 127, 1]
    """
    if grad_bits in (1, FLOAT_BITS):
        return 1
    return 2 if grad_bits == 2 else 2 ** (grad_bits - 1) - 1

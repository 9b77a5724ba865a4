"""Packs digits of any base into 32-bit words, stored as int32, which collectives accept."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def check_base(base: int) -> None:
    """Raises ValueError unless `base` is an integer from 2 to 2**31."""
    if not isinstance(base, int) or not 2 <= base <= 2**31:
        raise ValueError(f"`base` must be an integer from 2 to 2**31. Received: base={base}")


@functools.cache
def digits_per_word(base: int) -> int:
    """Returns the largest d with `base**d <= 2**32`: 20 for base 3, 16 for 4, 2 for 8193."""
    check_base(base)
    count = 1
    while base ** (count + 1) <= 2**32:
        count += 1
    return count


def num_words(num_elements: Any, base: int) -> Any:
    """Returns the number of words that `pack` needs for `num_elements` digits, also a tensor."""
    return -(-num_elements // digits_per_word(base))


def join_planes(planes: Sequence[tf.Tensor], base: int) -> tf.Tensor:
    """Returns the words `sum_j planes[j] * base**j`, uint32, of uint32 digits."""
    factor = tf.constant(base, tf.uint32)
    words = planes[-1]
    for plane in reversed(planes[:-1]):
        words = words * factor + plane
    return words


def plane(words: tf.Tensor, digit: int, base: int) -> tf.Tensor:
    """Returns digit `digit` of each uint32 word: `(words // base**digit) % base`."""
    if digit:
        words = words // tf.constant(base**digit, tf.uint32)
    if digit == digits_per_word(base) - 1:
        return words
    return words % tf.constant(base, tf.uint32)


def pack(digits: tf.Tensor, base: int, *, padding: int = 0) -> tf.Tensor:
    """Packs digits into words, plane-major: digit j of word i is element `j * num_words + i`.

    Args:
        digits: integer tensor [n], values 0..base-1 (not checked).
        base: number of values of a digit.
        padding: digit that fills the last places.

    Returns:
        int32 tensor [num_words(n, base)] of unsigned bit patterns.

    Raises:
        ValueError: `base` is out of range, or `digits` is not a vector.

    Example:
    >>> pack(tf.constant([2, 0, 1]), base=3).shape
    TensorShape([1])
    """
    digits = tf.convert_to_tensor(digits)
    if digits.shape.rank != 1:
        raise ValueError(f"`digits` must be a vector. Received: shape={digits.shape}")
    # Static, if possible, for the words' shape.
    size = tf.size(digits) if digits.shape[0] is None else digits.shape[0]
    count, width = digits_per_word(base), num_words(size, base)
    digits = tf.pad(digits, [[0, count * width - size]], constant_values=padding)
    planes = tf.unstack(tf.cast(tf.reshape(digits, [count, width]), tf.uint32), num=count)
    return tf.bitcast(join_planes(planes, base), tf.int32)


def unpack(words: tf.Tensor, num_elements: int, base: int) -> tf.Tensor:
    """Inverse of `pack`.

    Args:
        words: int32 tensor [num_words(num_elements, base)].
        num_elements: number of digits.
        base: number of values of a digit.

    Returns:
        int32 tensor [num_elements].

    Raises:
        ValueError: `base` is out of range, or `words` has another shape or type.
    """
    words = tf.convert_to_tensor(words)
    width = num_words(num_elements, base)
    if words.dtype != tf.int32 or words.shape != [width]:
        raise ValueError(
            f"`words` must be int32 [{width}] for {num_elements} digits in base {base}."
            f" Received: {words.dtype.name} {words.shape}"
        )
    return digits_of(words, num_elements, base)


def digits_of(words: tf.Tensor, num_digits: Any, base: int) -> tf.Tensor:
    """Returns the digits `[..., num_digits]` of words `[..., W]`; see `unpack`."""
    words = tf.bitcast(words, tf.uint32)
    planes = [plane(words, digit, base) for digit in range(digits_per_word(base))]
    return tf.cast(tf.concat(planes, -1)[..., :num_digits], tf.int32)

"""Checks of users' arguments, with errors of one form."""

import difflib
import fractions
from collections.abc import Iterable
from typing import Any, TypeGuard

# Maximum number of characters.
_MAX_SHOWN = 200
_MAX_DENOMINATOR = 10**6
# Of a number: more than errors of a few float operations.
_MAX_ERROR = fractions.Fraction(1, 10**12)


def check(condition: Any, name: str, rule: str, value: object) -> None:
    """Raises ValueError unless a condition holds.

    Example:
        >>> check(0 > 1, "num_nodes", "must be a positive integer", 0)
        Traceback (most recent call last):
        ...
        ValueError: `num_nodes` must be a positive integer. Received: num_nodes=0
    """
    if not condition:
        raise ValueError(f"`{name}` {rule}. Received: {name}={shown(value)}")


def is_integer(value: Any, least: int | None = None) -> TypeGuard[int]:
    """Returns True for an integer, not a bool, of at least `least`."""
    integer = isinstance(value, int) and not isinstance(value, bool)
    return integer and (least is None or value >= least)


def check_integer(name: str, value: object, least: int = 1) -> None:
    """Raises ValueError unless a value is an integer of at least `least`; see `check`.

    Example:
        >>> check_integer("num_nodes", 0)
        Traceback (most recent call last):
        ...
        ValueError: `num_nodes` must be a positive integer. Received: num_nodes=0
    """
    rule = "must be a positive integer" if least == 1 else f"must be an integer, {least} or more"
    check(is_integer(value, least), name, rule, value)


def as_fraction(value: float | fractions.Fraction) -> fractions.Fraction:
    """Returns the number that a user means by a float, so that products with it are exact.

    Example:
        >>> as_fraction(1.1), as_fraction(1 / 3)
        (Fraction(11, 10), Fraction(1, 3))
    """
    exact = fractions.Fraction(str(value))
    near = exact.limit_denominator(_MAX_DENOMINATOR)
    return near if abs(near - exact) <= _MAX_ERROR * abs(exact) else exact


def shown(value: object) -> str:
    """Formats a value for an error: its repr, without the middle of long texts.

    Example:
        >>> shown("lenet")
        "'lenet'"
    """
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # too deep; an integer of too many digits
        return f"a value of type {type(value).__name__} too large to show"
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[: _MAX_SHOWN // 2]}[... {len(text)} characters ...]{text[-_MAX_SHOWN // 4 :]}"


def did_you_mean(name: object, known: Iterable[str], prefix: str = "") -> str:
    """Returns a hint at the known name nearest to an unknown one, or "".

    Example:
        >>> did_you_mean("grad_bit", ["seed", "grad_bits"])
        " (did you mean 'grad_bits'?)"
    """
    nearest = difflib.get_close_matches(str(name)[:_MAX_SHOWN], known, n=1)
    return f" (did you mean {prefix + nearest[0]!r}?)" if nearest else ""

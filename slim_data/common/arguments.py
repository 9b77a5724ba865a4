"""Rules for arguments of several functions."""

import numbers
from typing import Any

from slim_data.common.errors import DataError


def check_at_least(minimum: int, **arguments: Any) -> None:
    """Raises DataError unless every argument is an integer of at least `minimum`, in 64 bits.

    Example:
        >>> check_at_least(1, batch_size=0)
        Traceback (most recent call last):
        ...
        DataError: `batch_size` must be a positive integer. Received: batch_size=0
    """
    for name, value in arguments.items():
        is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not is_integer or value < minimum or value >= 2**63:
            kind = {1: "a positive integer", 0: "an integer of 0 or more"}.get(minimum, "an int64")
            raise DataError(f"`{name}` must be {kind}. Received: {name}={value!r}")

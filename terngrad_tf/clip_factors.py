"""Standard deviations at which gradients are clipped before they are rounded."""

import numbers
from typing import Any

AUTO = "auto"
# With less, codes stand for steps that float32 hardly adds to a weight, and training does nothing.
# TernGrad's code takes them for 0.
LEAST = 1e-5
MOST = 1e6
RULE = f'must be 0 (no clipping), a number from {LEAST:g} to {MOST:g}, or "auto"'


def is_clip_factor(value: Any) -> bool:
    """Returns True for values that `RULE` allows.

    Example:
        >>> [is_clip_factor(value) for value in (2.5, 0, "auto", 1e-38, "2.5", True)]
        [True, True, True, False, False, False]
    """
    if isinstance(value, str):
        return value == AUTO
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    number: Any = value
    return bool(number == 0 or LEAST <= number <= MOST)

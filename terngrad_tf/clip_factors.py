"""Standard deviations at which gradients are clipped before they are rounded."""

import numbers
from typing import Any

from terngrad_tf.common.arguments import check

AUTO = "auto"
# Smaller factors give codes for steps that float32 hardly adds to a weight. TernGrad treats such
# factors as 0.
LEAST = 1e-5
MOST = 1e6
# For ternary codes, as in TernGrad's paper.
_TERNARY = 2.5


def default_factor(levels: int) -> float | str:
    """Returns the factor for codes from `-levels` to `levels`; finer codes need less clipping."""
    return _TERNARY if levels == 1 else AUTO


def check_factor(name: str, value: Any) -> None:
    """Raises ValueError unless a value is a factor.

    Example:
        >>> for value in (2.5, 0, "auto"):
        ...     check_factor("clip_factor", value)
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number: Any = value
    is_allowed = number == 0 or LEAST <= number <= MOST if is_number else value == AUTO
    rule = f'must be 0 (no clipping), a number from {LEAST:g} to {MOST:g}, or "{AUTO}"'
    check(bool(is_allowed), name, rule, value)

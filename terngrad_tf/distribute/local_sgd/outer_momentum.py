"""Default momentum of the outer optimizer of local steps."""

# Momentum was harmful up to this many steps between exchanges; 0.5 helped from twice as many on.
_SHORT = 16
_MOST = 0.5


def default_outer_momentum(sync_every: int | None) -> float:
    """Nesterov momentum of the outer optimizer: `1 - 16 / sync_every`, from 0 to 0.5.

    An inner momentum of 0.9 averages some ten steps. An outer momentum was harmful when exchanges
    followed each other as quickly.

    Args:
        sync_every: steps from one exchange to the next; None, taken to be many, if time decides.

    Example:
    >>> [default_outer_momentum(steps) for steps in (1, 16, 32, 128)]
    [0.0, 0.0, 0.5, 0.5]
    """
    return _MOST if sync_every is None else min(_MOST, max(0.0, 1 - _SHORT / sync_every))

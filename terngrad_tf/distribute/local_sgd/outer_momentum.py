"""The default momentum of the outer optimizer of local steps."""

# Momentum did harm with up to this many steps between exchanges; with twice as many, half helped.
_SHORT = 16
_MOST = 0.5


def default_outer_momentum(sync_every: int | None) -> float:
    """Returns the default Nesterov momentum of the outer optimizer.

    The momentum is `1 - 16 / sync_every`, limited to 0 to 0.5: it did harm if exchanges follow each
    other about as quickly as the steps that an inner momentum of 0.9 averages.

    Args:
        sync_every: steps between exchanges; None if time decides, which counts as many.

    Example:
    >>> [default_outer_momentum(steps) for steps in (1, 16, 32, 128)]
    [0.0, 0.0, 0.5, 0.5]
    """
    return _MOST if sync_every is None else min(_MOST, max(0.0, 1 - _SHORT / sync_every))

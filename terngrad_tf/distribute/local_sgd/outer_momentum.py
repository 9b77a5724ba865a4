"""The default momentum with which exchanged changes of local steps are applied."""

# Up to so many steps between exchanges it did harm; from twice as many on, half did good.
_SHORT = 16
_MOST = 0.5


def default_outer_momentum(sync_every: int | None) -> float:
    """Nesterov momentum of the outer optimizer for steps from one exchange to the next.

    `1 - 16 / sync_every`, but from 0 to 0.5: where exchanges follow each other about as quickly as
    the steps that an inner momentum of 0.9 averages, a momentum of theirs did harm.

    Args:
        sync_every: steps; None where time decides, which is taken to be many.

    Example:
    >>> [default_outer_momentum(steps) for steps in (1, 16, 32, 128)]
    [0.0, 0.0, 0.5, 0.5]
    """
    return _MOST if sync_every is None else min(_MOST, max(0.0, 1 - _SHORT / sync_every))

"""The default momentum of the outer optimizer of local steps."""

_SHORT = 16
_MOST = 0.5


def default_outer_momentum(sync_every: int | None) -> float:
    """Returns the outer optimizer's default Nesterov momentum, `1 - 16 / sync_every` in 0 to 0.5.

    Momentum does harm if exchanges follow each other about as quickly as the steps that an inner
    momentum of 0.9 averages. None: time decides.

    Example:
    >>> [default_outer_momentum(steps) for steps in (1, 16, 32, 128)]
    [0.0, 0.0, 0.5, 0.5]
    """
    return _MOST if sync_every is None else min(_MOST, max(0.0, 1 - _SHORT / sync_every))

"""What must be the same in all processes: options, calls, data and weights, compared or made so."""

__all__ = []

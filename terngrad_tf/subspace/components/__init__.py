"""Principal components of weights, in memory and in files."""

__all__ = []

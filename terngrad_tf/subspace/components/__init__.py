"""Principal components of a run's weights, in memory and in files."""

__all__ = []

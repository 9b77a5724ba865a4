"""Output of processes: read, sorted, shown and logged."""

__all__ = []

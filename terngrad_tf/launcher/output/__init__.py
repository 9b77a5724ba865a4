"""What processes write: read, sorted, shown and logged."""

__all__ = []

"""What the programs for data have in common."""

__all__ = []

"""The network of a run and its initial weights."""

__all__ = []

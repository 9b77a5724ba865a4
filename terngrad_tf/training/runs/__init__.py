"""A training run from top to bottom."""

__all__ = []

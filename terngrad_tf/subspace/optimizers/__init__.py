"""Optimizers inside a subspace."""

__all__ = []

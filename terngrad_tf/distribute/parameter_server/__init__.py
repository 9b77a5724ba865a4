"""Asynchronous training with parameter servers."""

__all__ = []

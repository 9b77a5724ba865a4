"""Interfaces between a step and the code that it calls."""

__all__ = []

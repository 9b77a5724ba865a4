"""Compares or equalizes the options, calls, data and weights that all processes must share."""

__all__ = []

"""Errors, arguments, processes and progress, for every part of the package."""

__all__ = []

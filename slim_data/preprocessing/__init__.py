"""Styles of preprocessing, one a file, and what they are made of."""

__all__ = []

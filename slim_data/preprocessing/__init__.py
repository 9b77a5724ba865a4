"""Styles of preprocessing, one per file, and their parts."""

__all__ = []

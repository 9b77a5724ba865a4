"""Data sets, one a file, and their conversion to TFRecords."""

__all__ = []

"""Data sets, one per file, and their conversion to TFRecords."""

__all__ = []

"""Streams: codes that are mostly zero, compressed."""

__all__ = []

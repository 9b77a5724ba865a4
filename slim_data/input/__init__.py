"""Turns converted data sets into batches, and checks whole data sets."""

__all__ = []

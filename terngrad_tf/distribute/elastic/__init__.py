"""Clusters that lose and gain workers while they train."""

__all__ = []

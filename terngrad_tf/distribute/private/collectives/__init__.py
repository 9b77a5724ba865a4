"""Collectives of one process's and of many processes' replicas."""

__all__ = []

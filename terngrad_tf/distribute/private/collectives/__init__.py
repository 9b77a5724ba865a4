"""Collectives among the replicas of one or several processes."""

__all__ = []

"""Replicas that run one after another in one process, and what they share."""

__all__ = []

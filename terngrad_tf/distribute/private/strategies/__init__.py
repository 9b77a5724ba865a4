"""Strategies for the devices of one process and for a cluster."""

__all__ = []

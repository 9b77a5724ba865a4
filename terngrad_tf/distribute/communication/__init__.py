"""Connections, errors and common values of processes, and a watchdog for endless waits."""

__all__ = []

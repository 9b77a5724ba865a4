"""Processes that wait for one another: connections, errors of peers, watchdog, objects for all."""

__all__ = []

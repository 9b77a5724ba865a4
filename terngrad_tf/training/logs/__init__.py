"""Logs of a run: lines, a table in a terminal, TensorBoard."""

__all__ = []

"""Starts the processes of a cluster, watches them, and ends them together: `terngrad run`.

Imports no TensorFlow.
"""

__all__ = []

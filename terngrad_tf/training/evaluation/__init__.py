"""Uses of a trained network: evaluation, prediction, export."""

__all__ = []

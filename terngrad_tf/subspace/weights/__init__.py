"""Weights of a run: their order, snapshots, averages, and the batch-norm statistics they need."""

__all__ = []

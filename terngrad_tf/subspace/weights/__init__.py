"""Weights: their order, snapshots, averages, and their batch-norm statistics."""

__all__ = []

"""Data sets and batches for training and evaluation."""

__all__ = []

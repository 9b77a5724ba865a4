"""Which wire is the quickest: a model of its cost, the links as measured, trials."""

__all__ = []

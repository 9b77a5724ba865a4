"""Local steps: replicas that train alone for a while and exchange the changes of their weights."""

__all__ = []

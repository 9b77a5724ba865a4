"""Parts that the data programs share."""

__all__ = []

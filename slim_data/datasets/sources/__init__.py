"""Sources of images and labels, which data sets share."""

__all__ = []

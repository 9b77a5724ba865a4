"""ImageNet (ILSVRC 2012): its archives, lists, bounding boxes and records."""

__all__ = []

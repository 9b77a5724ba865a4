"""From a converted data set to batches: pipelines, checks of whole data sets."""

__all__ = []

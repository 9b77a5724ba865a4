"""TFRecord files of labelled images: their format, records, shards and faults."""

__all__ = []

"""What programs share: flags, the data sets' experiments, how a program ends."""

__all__ = []

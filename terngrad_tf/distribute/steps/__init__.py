"""What a step says to the code that runs it: whose it is, and what it may exchange."""

__all__ = []

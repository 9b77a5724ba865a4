"""What is replaced in Keras."""

__all__ = []

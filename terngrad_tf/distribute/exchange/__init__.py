"""What gradients travel as: buckets, their quantization, wires and the bytes that these cost."""

__all__ = []

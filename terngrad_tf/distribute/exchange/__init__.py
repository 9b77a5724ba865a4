"""The exchange of gradients: buckets, their quantization, wires and traffic."""

__all__ = []

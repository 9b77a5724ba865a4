"""What passes between a step and the code that it calls: interfaces, contexts, numbers."""

__all__ = []

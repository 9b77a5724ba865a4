"""A run on disk: its folder and its checkpoints."""

__all__ = []

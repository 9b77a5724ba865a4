"""Small modules for every layer: arguments, files, places, options, and others."""

__all__ = []

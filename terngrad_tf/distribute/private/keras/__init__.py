"""Replacements for functions of Keras."""

__all__ = []

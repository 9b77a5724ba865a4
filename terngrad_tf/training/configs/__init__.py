"""Configurations of the programs: options, their rules, and the mechanism that declares them."""

__all__ = []

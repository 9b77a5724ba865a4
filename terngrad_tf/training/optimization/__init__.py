"""Losses, optimizers, schedules and moving averages."""

__all__ = []

"""Time and loss of exchanges: stopwatch, statistics, stragglers, records."""

__all__ = []

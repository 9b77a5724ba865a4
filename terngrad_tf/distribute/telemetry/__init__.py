"""What a step took and what its exchange lost: stopwatch, statistics, stragglers, records."""

__all__ = []

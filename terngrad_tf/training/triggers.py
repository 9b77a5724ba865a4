"""When something is due: rules, each a function of the number of steps done to a bool."""

import time
from collections.abc import Callable

from terngrad_tf.training.run_config import CheckpointConfig

# Whether something is due after so many steps.
Trigger = Callable[[int], bool]


def every_steps(steps: int) -> Trigger:
    """After each so many steps.

    Args:
        steps: positive integer.

    Example:
        >>> due = every_steps(5)
        >>> due(4), due(5)
        (False, True)
    """
    return lambda step: step % steps == 0


def every_seconds(seconds: float, steps: int = 1, at_once: bool = False) -> Trigger:
    """When so many seconds have passed since the last time.

    Args:
        seconds: number of at least 0.
        steps: looks at the clock after each so many steps only. Default 1.
        at_once: whether the first look finds it due. Default False: the clock starts now.

    Example:
        >>> due = every_seconds(1000.0, at_once=True)
        >>> due(1), due(2)
        (True, False)
    """
    last = None if at_once else time.monotonic()

    def due(step):
        nonlocal last
        now = time.monotonic()
        if step % steps or (last is not None and now - last < seconds):
            return False
        last = now
        return True

    return due


def never(step: int) -> bool:
    """At no step."""
    return False


def saving(config: CheckpointConfig) -> Trigger:
    """When to save, by a `CheckpointConfig`."""
    if config.save_interval_secs is None:
        return every_steps(config.save_iter)
    return every_seconds(config.save_interval_secs)


def summaries(config: CheckpointConfig, steps: int) -> Trigger:
    """When to write for TensorBoard what is known after each so many steps."""
    if config.save_summaries_secs is None:
        return every_steps(steps)
    return every_seconds(config.save_summaries_secs, steps, at_once=True)

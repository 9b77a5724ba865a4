"""Rules for when something is due, as functions of the number of steps done."""

import time
from collections.abc import Callable

from terngrad_tf.training.configs.run_config import CheckpointConfig

# True if something is due after this number of steps.
Trigger = Callable[[int], bool]


def every_steps(steps: int) -> Trigger:
    """Returns a rule that is due after every `steps` steps.

    Example:
        >>> due = every_steps(5)
        >>> due(4), due(5)
        (False, True)
    """
    return lambda step: step % steps == 0


def every_seconds(seconds: float, steps: int = 1, at_once: bool = False) -> Trigger:
    """Returns a rule that is due when `seconds` have passed since the last time.

    Args:
        steps: the clock is checked only every `steps` steps.
        at_once: whether the first check is due, or the clock starts now.

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
    """Returns False: a rule that is never due."""
    return False


def saving(config: CheckpointConfig) -> Trigger:
    """Returns the rule for saving."""
    if config.save_interval_secs is None:
        return every_steps(config.save_iter)
    return every_seconds(config.save_interval_secs)


def summaries(config: CheckpointConfig, steps: int) -> Trigger:
    """Returns the rule for TensorBoard's entries with values known every `steps` steps."""
    if config.save_summaries_secs is None:
        return every_steps(steps)
    return every_seconds(config.save_summaries_secs, steps, at_once=True)

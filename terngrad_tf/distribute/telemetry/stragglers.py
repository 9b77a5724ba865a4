"""Stragglers: the processes of a cluster that the others wait for."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.common import tags
from terngrad_tf.common.arguments import check, is_integer
from terngrad_tf.distribute import private
from terngrad_tf.distribute.telemetry.model_steps import steps_of

# Of a step; shorter waits are usual if processes share machines and links.
REPORTED_SHARE = 0.2


class SyncTimer:
    """Measures the time that a process spends at sync points, waiting and exchanging.

    A sync point begins on a process when its own values exist, and ends on all processes at about
    the same time. So the last process to arrive spends the least time in it, and another process
    waits for the difference. Only durations are compared, since clocks may differ.

    The sync points are the exchange of gradients, and the question whether any process has examples
    left. Others, such as synchronized batch norm's, shorten these, so the real wait may be longer.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        with tf.device(device):
            self._sum = tf.Variable(tf.zeros([], tf.float64), trainable=False)

    def measure(self, brought: Any, function: Callable[..., Any]) -> Any:
        """Returns the result of `function`, which adds a sync point to the traced graph.

        Args:
            brought: values that exist when the sync point begins.
            function: returns the values, one or a list, that exist when it ends.
        """
        begin, _ = private.stamped(_tensors(brought))
        result = function()
        end, _ = private.stamped(_tensors(result))
        with tf.device(self._device):
            self._sum.assign_add(end - begin)
        return result

    def take(self) -> float:
        """Seconds at sync points since the last call."""
        seconds = float(self._sum.numpy())
        self._sum.assign(0.0)
        return seconds


def timer_of(strategy: tf.distribute.Strategy) -> Any:
    """`SyncTimer` of a strategy; None for a single process and for GPUs."""
    # Operations of a GPU end before its queued work does.
    if strategy.num_processes == 1 or "GPU" in strategy.extended.worker_devices[0]:
        return None
    return SyncTimer(strategy.extended.worker_devices[0])


def describe_waits(
    names: Sequence[str], sync_seconds: Sequence[float], step_seconds: float
) -> str | None:
    """One line on the waits; None if no process waits `REPORTED_SHARE` of a step.

    The others wait for processes whose own waits are less than half of the longest. All seconds are
    means of a step.

    Example:
    >>> describe_waits(["worker 0", "worker 1"], [0.050, 0.008], 0.090)
    'the others wait for worker 1: worker 0 42 ms of the 90 ms of a step'
    """
    waits = [seconds - min(sync_seconds) for seconds in sync_seconds]
    longest = max(waits)
    if longest < REPORTED_SHARE * step_seconds:
        return None
    slow = [name for name, wait in zip(names, waits, strict=True) if wait < longest / 2]
    told = [
        f"{name} {1e3 * wait:.0f} ms"
        for name, wait in zip(names, waits, strict=True)
        if name not in slow
    ]
    return (
        f"the others wait for {', '.join(slow)}: {', '.join(told)}"
        f" of the {1e3 * step_seconds:.0f} ms of a step"
    )


class StragglerMonitor(keras.callbacks.Callback):
    """Reports on every process which process of the cluster the others wait for, and how long.

    Every `freq` batches all processes gather the mean times of their exchanges; a process's wait is
    its mean less the smallest mean. There is no report if no process waits a fifth of a step,
    without a cluster, or on GPUs.

    Example:
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(tf.ones([4, 2]), tf.ones([4]), verbose=0,
    ...                     callbacks=[StragglerMonitor()])

    Args:
        freq: batches over which waits are averaged, the same on all processes. Default 100.
        report: function of the line, a str. Default `print`.
        write: function of a dict from tags of `terngrad_tf.common.tags` to the processes' waits in
            a step, and of the step. Default: none.

    Raises:
        ValueError: `freq` is out of range.
    """

    model: keras.Model
    runs_on_all_processes = True

    def __init__(
        self,
        freq: int = 100,
        report: Callable[[str], Any] = print,
        write: Callable[[Mapping[str, float], int], Any] | None = None,
    ) -> None:
        super().__init__()
        check(is_integer(freq, 1), "freq", "must be a positive integer", freq)
        self.freq = freq
        self._report = report
        self._write = write
        self._timer = None
        self._since: Any = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Finds the strategy's timer."""
        self._timer = getattr(self.model.distribute_strategy, "sync_timer", None)
        self._since = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages and reports after `freq` batches."""
        if self._timer is None:
            return
        if self._since is None:
            # The first step also traces and compiles.
            self._begin()
            return
        self._batches += 1
        if self._batches < self.freq:
            return
        self._pause()
        strategy = self.model.distribute_strategy
        # Local steps, too, of which many lie between two exchanges.
        steps = max(steps_of(self.model) - self._first_step, 1)
        gathered = strategy.extended.process_group.all_gather(
            tf.constant([self._sync_seconds / steps, self._seconds / steps], tf.float32)
        ).numpy()
        line = describe_waits(strategy.tasks.names, gathered[:, 0].tolist(), gathered[:, 1].mean())
        if line:
            self._report(line)
        if self._write is not None:
            waits = zip(strategy.tasks.names, gathered[:, 0] - gathered[:, 0].min(), strict=True)
            scalars = {tags.wait_seconds(name): float(wait) for name, wait in waits}
            self._write(scalars, steps_of(self.model))
        self._begin()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Stops the clock for the evaluation within `fit`."""
        if self._since is not None:
            self._pause()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Starts the clock again."""
        if self._since is not None:
            self._resume()

    def _begin(self):
        self._batches, self._first_step = 0, steps_of(self.model)
        self._sync_seconds = self._seconds = 0.0
        self._resume()

    def _resume(self):
        self._timer.take()
        self._since = time.perf_counter()

    def _pause(self):
        self._sync_seconds += self._timer.take()
        self._seconds += time.perf_counter() - self._since


def _tensors(values):
    """Flat list of the local tensors of a nest of values and None."""
    local = [private.local_tensors(v) for v in tf.nest.flatten(values) if v is not None]
    return tf.nest.flatten(local, expand_composites=True)

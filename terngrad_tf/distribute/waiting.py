"""Which host of a cluster the others wait for, and how long."""

import functools
import time

import keras
import tensorflow as tf

from terngrad_tf.arguments import check, is_integer
from terngrad_tf.distribute import private

# Below this share of a step, waits are taken as those of hosts that share machines and links.
REPORTED_SHARE = 0.2


class MeetingTimer:
    """Measures how long a host is in meetings: waits for all others, and exchanges with them.

    A meeting begins on a host when what it brings exists, and ends on all at about the same time.
    So who comes last is in it shortest, and what a host spends in meetings beyond the host that
    spends least is the time that it waits for that one. Only durations are compared: the hosts'
    clocks may differ.

    Measured are the meetings that hold a step up: that on whether any host has examples left, and
    the exchange of gradients. Others, such as those of synchronized batch norm, shorten these, so
    a wait may be longer than told.

    Args:
        device: the first local device, a CPU.
    """

    def __init__(self, device):
        self._device = device
        with tf.device(device):
            self._sums = tf.Variable(tf.zeros([2], tf.float64), trainable=False)

    def meet(self, brought, function, steps):
        """Calls `function`, which adds a meeting to the graph under construction.

        Args:
            brought: list of values that exist when the meeting begins.
            function: returns the values, one or a list, that exist when it ends.
            steps: 1 where the meeting belongs to one training step, else 0.

        Returns:
            What `function` returned.
        """
        with tf.device(self._device), tf.control_dependencies(_tensors(brought)):
            begin = tf.timestamp()
        result = function()
        with tf.device(self._device):
            with tf.control_dependencies(_tensors(result)):
                seconds = tf.timestamp() - begin
            self._sums.assign_add(tf.stack([seconds, tf.constant(steps, tf.float64)]))
        return result

    def take(self):
        """Seconds in meetings, and the number of steps, since this was last called."""
        seconds, steps = self._sums.numpy()
        self._sums.assign(tf.zeros_like(self._sums))
        return seconds, int(steps)


def timer_of(strategy):
    """`MeetingTimer` of a strategy over several hosts; None where nothing can be measured."""
    # A GPU's operations only queue its work, so the time at which they end says nothing.
    if strategy.num_hosts == 1 or "GPU" in strategy.extended.worker_devices[0]:
        return None
    return MeetingTimer(strategy.extended.worker_devices[0])


def timed(reduce_gradients):
    """Method `reduce_gradients` of `TernaryAllReduce`, measured by the strategy's timer."""

    @functools.wraps(reduce_gradients)
    def run(self, strategy, gradients, *args):
        reduce = functools.partial(reduce_gradients, self, strategy, gradients, *args)
        timer = getattr(strategy, "meeting_timer", None)
        return reduce() if timer is None else timer.meet(gradients, reduce, steps=1)

    return run


def describe(names, meeting_seconds, step_seconds):
    """One line on who waits for whom; None where the waits are balanced.

    They are balanced where no host waits `REPORTED_SHARE` of a step. Waited for are the hosts that
    wait less than half as long as the one that waits longest.

    Example:
    >>> describe(["worker 0", "worker 1"], [0.050, 0.008], 0.090)
    'the others wait for worker 1: worker 0 42 ms of the 90 ms of a step'

    Args:
        names: name of each host.
        meeting_seconds: mean seconds of a step that each spends in meetings.
        step_seconds: mean seconds of a step.
    """
    waits = [seconds - min(meeting_seconds) for seconds in meeting_seconds]
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


class WaitReport(keras.callbacks.Callback):
    """Tells on every host which host of the cluster the others wait for, and how long.

    Each host measures how long its exchanges of gradients take, waiting among them; now and then
    all gather the means, and what a host spends beyond the one that spends least is its wait.
    Nothing is told where no host waits a fifth of a step, without a cluster, or on GPUs.

    Example:
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(tf.ones([4, 2]), tf.ones([4]), verbose=0, callbacks=[WaitReport()])

    Args:
        every: batches over which waits are averaged, the same on all hosts. Default 100.
        report: function of the line, a str. Default `print`.

    Raises:
        ValueError: `every` is out of range.
    """

    def __init__(self, every=100, report=print):
        super().__init__()
        check(is_integer(every, 1), "every", "must be a positive integer", every)
        self._every = every
        self._report = report
        self._timer = None
        self._since = None

    def on_train_begin(self, logs=None):
        """Finds the strategy."""
        self._timer = getattr(self.model.distribute_strategy, "meeting_timer", None)
        self._since = None

    def on_train_batch_end(self, batch, logs=None):
        """Averages and reports where it is due."""
        if self._timer is None:
            return
        if self._since is None:
            # The first step also traces and compiles.
            self._begin()
            return
        self._batches += 1
        if self._batches < self._every:
            return
        self._pause()
        strategy = self.model.distribute_strategy
        steps = max(self._steps, 1)
        gathered = strategy.extended.host_group.all_gather(
            tf.constant([self._in_meetings / steps, self._seconds / steps], tf.float32)
        ).numpy()
        line = describe(strategy.hosts.names, gathered[:, 0].tolist(), gathered[:, 1].mean())
        if line:
            self._report(line)
        self._begin()

    def on_test_begin(self, logs=None):
        """Leaves out the evaluation within `fit`."""
        if self._since is not None:
            self._pause()

    def on_test_end(self, logs=None):
        """Goes on after the evaluation."""
        if self._since is not None:
            self._resume()

    def _begin(self):
        self._batches = self._steps = 0
        self._in_meetings = self._seconds = 0.0
        self._resume()

    def _resume(self):
        self._timer.take()
        self._since = time.perf_counter()

    def _pause(self):
        in_meetings, steps = self._timer.take()
        self._in_meetings += in_meetings
        self._steps += steps
        self._seconds += time.perf_counter() - self._since


def _tensors(values):
    """Flat list of the local tensors of one value or a list of values."""
    values = values if isinstance(values, list) else [values]
    local = [private.local_tensors(value) for value in values]
    return tf.nest.flatten(local, expand_composites=True)

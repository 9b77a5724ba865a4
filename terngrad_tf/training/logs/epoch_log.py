"""Lines by epoch, in the format of MindSpore's tutorial on dimension-reduction training."""

import time
from collections.abc import Callable

from terngrad_tf.training.logs.callbacks import StepCounter


class EpochLog(StepCounter):
    """Prints the last loss and the time of each epoch at its end.

        ============== Starting Training ==============
        epoch: 1 step: 625, loss is 5.2477064
        epoch time: 117246.345 ms, per step time: 187.594 ms

    The loss is the mean over replicas and over the steps since the last log line, without
    regularization; `entropy_loss` finds it in the metrics' means. An epoch ends with the first step
    that completes it; steps and time count from the end of the previous epoch, or the start of
    `fit`.
    """

    def __init__(
        self,
        first_step: int,
        batch_size: int,
        num_examples: int,
        entropy_loss: Callable[[dict[str, float]], float],
    ):
        super().__init__(first_step)
        self._batch_size = batch_size
        self._num_examples = num_examples
        self._entropy_loss = entropy_loss
        self._since = 0.0
        self._steps = 0

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Prints that training starts."""
        print("============== Starting Training ==============", flush=True)
        self._since = time.perf_counter()

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Reports at the end of an epoch."""
        self._steps += 1
        epoch = self.step * self._batch_size // self._num_examples
        if not epoch or last_step(epoch, self._batch_size, self._num_examples) != self.step:
            return
        before = last_step(epoch - 1, self._batch_size, self._num_examples)
        loss = self._entropy_loss(logs)
        milliseconds = 1e3 * (time.perf_counter() - self._since)
        print(
            f"epoch: {epoch} step: {self.step - before}, loss is {loss:.7f}\n"
            f"epoch time: {milliseconds:.3f} ms, "
            f"per step time: {milliseconds / self._steps:.3f} ms",
            flush=True,
        )
        self._since, self._steps = time.perf_counter(), 0


def last_step(epoch: int, batch_size: int, num_examples: int) -> int:
    """Returns the number of steps after which an epoch (from 1; 0 gives 0) is complete.

    Example:
        >>> last_step(2, batch_size=10, num_examples=25)
        5
    """
    return -(-epoch * num_examples // batch_size)

"""The chief's part in asynchronous training: schedules steps and processes their results."""

import concurrent.futures
import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import keras
import tensorflow as tf

from terngrad_tf.common import preemption
from terngrad_tf.distribute.exchange.traffic import PushTraffic
from terngrad_tf.parameter_server import worker_log, worker_step
from terngrad_tf.parameter_server.cluster import ParameterServerCluster
from terngrad_tf.parameter_server.variables import ServedModel
from terngrad_tf.training.configs.run_config import TrainConfig
from terngrad_tf.training.errors import DivergedError
from terngrad_tf.training.input.data import DatasetShard
from terngrad_tf.training.log import log, log_freq
from terngrad_tf.training.logs import screen, summaries, triggers
from terngrad_tf.training.logs.board import Board
from terngrad_tf.training.runs.cluster import FloatEpochs
from terngrad_tf.training.storage import checkpoints

_Result = TypeVar("_Result")

# Steps per worker that keep fast workers busy while a slow one computes.
_STEPS_AHEAD = 8
_POLL_SECONDS = 1.0
_LOOK_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class AsyncRun:
    """The steps that the chief schedules; `config` has a known network, `model` is compiled."""

    config: TrainConfig
    cluster: ParameterServerCluster
    shard: DatasetShard
    model: keras.Model
    served: ServedModel
    manager: tf.train.CheckpointManager
    board: Board

    def train(self, first_step: int, learning_rate: Callable[[int], Any]) -> PushTraffic:
        """Runs the remaining steps and returns the last step's traffic.

        Raises:
            PreemptedError: SIGTERM asked the chief to stop; all started steps are saved.
        """
        told_to_stop = threading.Event()
        with (
            preemption.stops_on_sigterm(told_to_stop.set) as last_step_ended,
            screen.show() as shown,
        ):
            return self._train(first_step, learning_rate, shown, told_to_stop, last_step_ended)

    def _train(self, first_step, learning_rate, shown, told_to_stop, last_step_ended):
        max_steps = self.config.max_steps
        function_of = self._functions()
        # `step` does not count scheduled steps: a lost worker's step may count twice.
        steps = StepQueue(self.cluster)
        own = self.config.checkpoints
        freq = log_freq(self.cluster.tasks)
        told = worker_log.AsyncLog(
            self.config.data.batch_size,
            own.log_freq or freq,
            triggers.summaries(own, freq),
            self.board,
            learning_rate,
            self.served.traffic,
            max_steps,
            shown,
        )
        due = triggers.saving(own)
        next_step = step = first_step
        saving = False
        while next_step < max_steps or steps.num_open:
            if told_to_stop.is_set():
                max_steps = next_step
            while next_step < max_steps and not steps.is_full and not saving:
                steps.schedule(function_of(next_step))
                next_step += 1
            # None is open if the signal came during a save.
            if steps.num_open and (result := steps.next()) is not None:
                before, step = step, max(step, int(result["step"]))
                if not tf.math.is_finite(result["total_loss"]):
                    raise DivergedError("the loss", step, self.manager.latest_checkpoint)
                told.add(result)
                # Steps may end in another order.
                saving = saving or any(map(due, range(before + 1, step + 1)))
            if told_to_stop.is_set():
                last_step_ended(steps.num_open > 0)
            if saving and not steps.num_open:
                self._save(step, steps)
                saving = False
        last_step_ended()
        told.write(step)
        if checkpoints.step_of(self.manager.latest_checkpoint or "-0") != step:
            self._save(step, steps)
        if max_steps < self.config.max_steps:
            raise preemption.PreemptedError("", step)
        return told.traffic

    def _functions(self):
        """Returns a function from a step's number to what a worker runs in the step."""
        num_examples: concurrent.futures.Future[int] = concurrent.futures.Future()
        num_examples.set_result(self.shard.num_examples)
        is_float = FloatEpochs(self.config, num_examples)
        function, exact_function = (
            worker_step.make_step(self.config.model, self.model, self.served, exact=exact)
            for exact in (False, True)
        )
        return lambda step: exact_function if is_float(step) else function

    def _save(self, step, steps):
        """Saves while no step runs."""
        steps.call(self.served.download)
        checkpoints.save(self.manager, self.model, step)
        self.board.histograms(summaries.weights_of(self.model), step)


class StepQueue:
    """Keeps all workers busy and returns their steps' results."""

    def __init__(self, cluster: ParameterServerCluster):
        self._cluster = cluster
        self._looked = time.monotonic()
        self._scheduled = queue.SimpleQueue()
        self._results = queue.SimpleQueue()
        self._num_open = 0
        # TensorFlow waits for a result without limit. This thread lets `_wait` detect lost servers
        # and does not keep the process alive.
        threading.Thread(target=self._fetch, daemon=True).start()

    @property
    def num_open(self) -> int:
        """Number of scheduled steps whose results were not returned yet."""
        return self._num_open

    @property
    def is_full(self) -> bool:
        """True if enough steps are scheduled."""
        return self._num_open >= _STEPS_AHEAD * self._cluster.num_workers

    def schedule(self, function: Callable[[Any], Any]) -> None:
        """Lets a free worker run a function of its iterator of batches."""
        coordinator = self._cluster.coordinator
        self._scheduled.put(coordinator.schedule(function, args=(self._cluster.batches,)))
        self._num_open += 1

    def next(self) -> dict[str, Any] | None:
        """Waits for a result, as NumPy values; None for a step done by a worker that is lost.

        Raises:
            PeerError: a parameter server is lost.
        """
        result = self._wait(self._results)
        if self._cluster.is_loss_of_worker(result):
            result = None
        if isinstance(result, BaseException):
            raise result
        self._num_open -= 1
        return result

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Runs a function that talks to the servers, and watches workers as `next` does."""
        results = queue.SimpleQueue()
        threading.Thread(target=_put_result, args=(function, results), daemon=True).start()
        result = self._wait(results)
        if isinstance(result, BaseException):
            raise result
        return result

    def _wait(self, results):
        """Returns the next result or exception."""
        while True:
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                for line in self._cluster.check_peers():
                    log(line)
                self._looked = time.monotonic()
            with contextlib.suppress(queue.Empty):
                return results.get(timeout=_POLL_SECONDS)

    def _fetch(self):
        while True:
            _put_result(self._scheduled.get().fetch, self._results)


def _put_result(function, results):
    """Puts a function's result or exception into a queue."""
    try:
        results.put(function())
    except BaseException as error:
        results.put(error)

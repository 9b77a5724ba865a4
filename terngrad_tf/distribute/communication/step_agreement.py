"""Lets all processes of a cluster act after the same step when one of them asks."""

import contextlib
import itertools
import logging
import threading
import time
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication.coordination import read
from terngrad_tf.distribute.communication.peers import PeerError

# Processes end no step while they agree.
_AGREE_SECONDS = 60.0
# An unanswered question costs the first process 25 KB forever, so ask seldom.
_ASK_AGAIN_SECONDS = 3600.0
_END = "end"

_logger = logging.getLogger(__name__)
_numbers = itertools.count()


class StepAgreement:
    """Finds a step that no process has passed, when any process asks for an action.

    Then each process publishes its number of steps, in a thread, and ends no step until it knows
    the numbers of all: the action follows the step after the largest number. Processes may be at
    different steps, since they wait only for each other's threads.

    Every process creates the agreement at the same point of the program, as the context of its
    steps.

    Example:
    >>> with StepAgreement(terngrad_tf.TernGradStrategy(num_nodes=1), first_step=7) as agreement:
    ...     agreement.ask("stop")
    ...     print(agreement.reached(8))
    {'stop': 0}

    Args:
        strategy: a `TernGradStrategy`; other strategies have one process.
        first_step: number of steps done.
    """

    def __init__(self, strategy: tf.distribute.Strategy, first_step: int) -> None:
        tasks = getattr(strategy, "tasks", None)
        self._tasks = tasks if tasks is not None and len(tasks.names) > 1 else None
        self._lock = threading.Lock()
        self._step = first_step
        self._agreed: dict[int, dict[str, int]] = {}
        self._wanted: set[str] = set()
        self._round = 0
        self._is_closed = False
        self._prefix = f"terngrad_tf/agreement/{next(_numbers)}"
        if self._tasks is not None:
            threading.Thread(target=self._listen, daemon=True).start()

    @property
    def step(self) -> int:
        """Number of steps done."""
        return self._step

    def ask(self, what: str) -> None:
        """Asks all processes to act after a future step; returns at once.

        Args:
            what: name of the action, a str without spaces other than "end".
        """
        with self._lock:
            if self._tasks is None:
                self._agreed.setdefault(self._step + 1, {}).setdefault(what, 0)
                return
            self._wanted.add(what)
            key = self._key("asked")
        self._publish_question(key, what)

    def reached(self, step: int) -> dict[str, int]:
        """Returns the actions of all processes at this step. Call it after each step.

        Args:
            step: number of steps done.

        Returns:
            Dict from action to the index of the process that asked; mostly empty.
        """
        with self._lock:
            self._step = step
            return self._agreed.pop(step, {})

    def __enter__(self) -> "StepAgreement":
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: Any
    ) -> None:
        with self._lock:
            self._is_closed = True
            if self._tasks is None or error_type is not None:
                return
            # Later questions get a step that no process reaches.
            with contextlib.suppress(tf.errors.OpError):
                private.publish(self._key(self._tasks.index), str(self._step))
            key = self._key("asked")
        self._publish_question(key, _END)  # ends all threads

    def _key(self, name):
        return f"{self._prefix}/{self._round}/{name}"

    def _publish_question(self, key, what):
        try:
            private.publish(key, f"{what} {self._tasks.index}")
        except tf.errors.AlreadyExistsError:
            pass  # maybe for another action: ask again afterwards
        except tf.errors.OpError as error:
            _logger.debug("not asked: %s", error)

    def _listen(self):
        try:
            what = None
            while what != _END:
                question = private.published(self._key("asked"), _ASK_AGAIN_SECONDS)
                if question is not None:
                    what, asking = question.split(" ")
                    self._agree(what, asking)
        except (PeerError, tf.errors.OpError) as error:
            # Training reports the same error.
            _logger.debug("no agreement: %s", error)

    def _agree(self, what, asking):
        with self._lock:
            if what == _END:
                self._is_closed = True
                return
            private.publish(self._key(self._tasks.index), str(self._step))
            if self._is_closed:
                # The steps ended with an error. Processes on their way to it must not wait for an
                # answer.
                self._round += 1
                return
            deadline = time.monotonic() + _AGREE_SECONDS
            steps = [
                int(read(self._tasks, index, self._key(index), "step", deadline))
                for index in range(len(self._tasks.names))
            ]
            self._agreed.setdefault(max(steps) + 1, {}).setdefault(what, int(asking))
            self._wanted.discard(what)
            self._round += 1
            key, wanted = self._key("asked"), next(iter(self._wanted), None)
        if wanted is not None:
            self._publish_question(key, wanted)

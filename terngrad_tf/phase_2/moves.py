"""TensorBoard logs of training in a subspace."""

import keras
import numpy as np

from terngrad_tf.common import tags
from terngrad_tf.distribute.exchange import traffic
from terngrad_tf.subspace import Subspace, SubspaceBFGS
from terngrad_tf.training.logs.callbacks import StepCounter
from terngrad_tf.training.runs.run import Run


class Moves(StepCounter):
    """Writes positions, trials and failed searches, and counts exchanged bytes."""

    def __init__(self, run: Run, subspace: Subspace):
        super().__init__(run.first_step)
        self._subspace = subspace
        self._optimizer = run.model.optimizer
        self._strategy = run.strategy
        self._board = run.board
        self._trials = self._failures = self._last_trials = 0

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Writes the initial position."""
        self._count()
        if self.step == 0:
            self.write_place(self.model)

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Writes the results of the step."""
        failures = self._failures
        self._count()
        self.write_place(self.model)
        if isinstance(self._optimizer, SubspaceBFGS):
            failed = self._failures - failures
            self._board.scalars(
                {tags.TRIALS: self._last_trials, tags.FAILED_SEARCHES: failed}, self.step
            )

    def traffic(self, step: int) -> traffic.Traffic:
        """Returns the `Traffic` of the last step between hosts or, on one host, between workers.

        `step` steps came before. Coordinates, losses, the optimizer's exchanges for its basis, and
        any exchanged gradients count.
        """
        members = self._strategy.num_processes
        if members == 1:
            members = self._strategy.num_replicas_in_sync
        own = self._optimizer.received_bytes(members, step)
        own += traffic.ring_bytes(4 * self._last_trials, members)
        gradients = self._strategy.traffic
        if gradients is not None and self._optimizer.steps_outside(step):
            own += gradients.received_bytes
        float32_bytes = traffic.ring_bytes(4 * self._subspace.num_weights, members)
        return traffic.Traffic("float32", members, own, float32_bytes)

    def _count(self):
        if isinstance(self._optimizer, SubspaceBFGS):
            trials = int(self._optimizer.num_trials.numpy())
            self._last_trials, self._trials = trials - self._trials, trials
            self._failures = int(self._optimizer.num_failures.numpy())

    def write_place(self, model: keras.Model) -> None:
        """Writes the position of a model's weights."""
        vector = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])
        place = self._subspace.components[:2].astype(np.float32) @ vector
        self._board.scalars(
            {tags.component(n): float(value) for n, value in enumerate(place, start=1)}, self.step
        )

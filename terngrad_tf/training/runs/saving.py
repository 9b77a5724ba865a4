"""Saves a run; its processes compare their weights and stop together."""

import typing
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.checkpoints import local_state
from terngrad_tf.common import preemption
from terngrad_tf.distribute import (
    Membership,
    NewcomersError,
    StepAgreement,
    TernGradStrategy,
    equalize_variables,
    local_steps_optimizer,
)
from terngrad_tf.training.logs import triggers
from terngrad_tf.training.logs.callbacks import StepCounter
from terngrad_tf.training.logs.triggers import Trigger
from terngrad_tf.training.optimization import local_steps
from terngrad_tf.training.storage import checkpoints

# Requests to a `StepAgreement`.
STOP = "stop"
_TAKE_IN = "take_in"
_COMPARE = "compare"


if typing.TYPE_CHECKING:
    from terngrad_tf.training.runs.run import Run


class Meetings:
    """Joint actions of a run's processes after the same step.

    Args:
        shared: variables that are equal on all processes after each step.
        newcomers: returns the names of waiting workers.
    """

    def __init__(
        self,
        strategy: TernGradStrategy,
        shared: Sequence[Any],
        agreement: StepAgreement,
        last_step_ended: Callable[[], None] = lambda: None,
        membership: Membership | None = None,
        newcomers: Callable[[], str] = lambda: "",
    ):
        self._strategy = strategy
        self._shared = shared
        self._agreement = agreement
        self._membership = membership
        self._newcomers = newcomers
        self.last_step_ended = last_step_ended

    def asked(self, step: int) -> tuple[bool, Exception | None]:
        """Returns whether to compare, and the error that ends the run after saving, or None.

        All processes must call this after each step.
        """
        asked = self._agreement.reached(step)
        stop = None
        if _TAKE_IN in asked:
            stop = NewcomersError(self._newcomers() or "workers that wait", step)
        if STOP in asked:
            tasks = self._strategy.tasks
            who = "" if tasks is None else tasks.describe(asked[STOP])
            stop = preemption.PreemptedError(who, step)
        return _COMPARE in asked, stop

    def compare(self) -> None:
        """Assigns the chief's variables to processes that differ; all processes must call this."""
        equalize_variables(self._strategy, self._shared)

    def compare_soon(self) -> None:
        """Makes all processes compare after a later step."""
        self._agreement.ask(_COMPARE)

    def saved(self, step: int, is_end: bool) -> None:
        """Records that this process saved; unless `is_end`, requests to take in waiting workers."""
        if self._membership is not None:
            self._membership.saved(step)
        if not is_end and self._newcomers():
            self._agreement.ask(_TAKE_IN)


class SaveCheckpoints(StepCounter):
    """Saves regularly and at the last step, but no weights that are not finite.

    If the run must stop, also saves and ends it with `PreemptedError`, or with `NewcomersError` if
    workers wait. If all processes save at the same step, they compare their weights before;
    otherwise soon after.

    Saves within `fit`, which overwrites the weights with their moving averages before it returns.

    Args:
        manager: None on processes that only check the weights, so that all end at the same step.
        is_due_on_all: whether saving is due at the same steps on all processes. If not, weights
            that are not finite are not saved: the next loss ends the run on all.
        is_chief: the chief's clock decides when others save.
        exchanged: called after the exchange of local steps that saving may begin with.
    """

    def __init__(
        self,
        first_step: int,
        manager: tf.train.CheckpointManager | None,
        due: Trigger,
        last_step: int,
        meetings: Meetings,
        is_due_on_all: bool = True,
        is_chief: bool = True,
        exchanged: Callable[[], None] = lambda: None,
    ):
        super().__init__(first_step)
        self._manager = manager
        self._due = due
        self._last_step = last_step
        self._meetings = meetings
        self._is_due_on_all = is_due_on_all
        self._copies = manager is not None and not is_chief
        self._exchanged = exchanged

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Saves if due."""
        compares, stop = self._meetings.asked(self.step)
        is_last = self.step == self._last_step
        stops = stop is not None and not is_last
        due = self._due(self.step)
        is_end = is_last or stops
        all_save = is_end or (due and self._is_due_on_all)
        if is_end:
            self._meetings.last_step_ended()
        if all_save:
            local_state.exchange_to_save(self.model.optimizer)
            self._exchanged()
        if compares or all_save:
            self._meetings.compare()
        if due or all_save or (compares and self._copies):
            checkpoints.save(self._manager, self.model, self.step, ends_run=all_save)
            if self._manager is not None:
                self._meetings.saved(self.step, is_end)
            if due and not all_save:
                self._meetings.compare_soon()
        if stop is not None and not is_last:
            raise stop


def copy_start(run: "Run") -> None:
    """Saves the initial state on processes that keep copies; all processes must call this."""
    if run.membership is None or not run.membership.num_copies or not run.first_step:
        return
    with local_state.collected_state(run.model.optimizer, run.manager is not None):
        if run.manager is not None and not run.strategy.is_chief:
            checkpoints.write(run.manager, run.first_step)
            run.membership.saved(run.first_step)


def saving(
    run: "Run", meetings: Meetings, exchanged: Callable[[], None] = lambda: None
) -> SaveCheckpoints:
    """Returns the `SaveCheckpoints` of a run, whose docstring explains `exchanged`."""
    config = run.config.checkpoints
    by_time = config.save_interval_secs is not None
    # Only the chief's clock counts.
    is_chief = run.strategy.is_chief
    due = triggers.saving(config) if is_chief or not by_time else triggers.never
    is_due_on_all = not by_time or run.strategy.num_processes == 1
    if not is_due_on_all and local_steps_optimizer(run.model.optimizer) is not None:
        # All processes contribute their state.
        due, is_due_on_all = local_steps.due_on_all(due, run.model.optimizer), True
    return SaveCheckpoints(
        run.first_step,
        run.manager,
        due,
        run.config.max_steps,
        meetings,
        is_due_on_all,
        is_chief,
        exchanged,
    )

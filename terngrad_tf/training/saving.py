"""When a run is saved, and what its processes do together then: compare their weights, stop."""

import typing
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import preemption
from terngrad_tf.checkpoints import local_state
from terngrad_tf.distribute import (
    Membership,
    NewcomersError,
    StepAgreement,
    TernGradStrategy,
    equalize_variables,
    local_steps_optimizer,
)
from terngrad_tf.training import checkpoints, local_steps, triggers
from terngrad_tf.training.callbacks import StepCounter
from terngrad_tf.training.triggers import Trigger

# What a `StepAgreement` is asked for.
STOP = "stop"
_TAKE_IN = "take_in"
_COMPARE = "compare"


if typing.TYPE_CHECKING:
    from terngrad_tf.training.run import Run


class Meetings:
    """What the processes of a run do after the same step.

    Args:
        strategy: the strategy.
        shared: list of the variables that all processes hold alike after each step.
        agreement: `StepAgreement` of the run's steps.
        last_step_ended: function without arguments, called once no step follows. Default: does
            nothing.
        membership: `Membership` of a cluster whose workers come and go. Default: none do.
        newcomers: function without arguments that tells who waits to take part. Default: nobody.
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
        """What all do now, to be called after each step.

        Returns:
            Whether to compare, and what ends the run once it is saved: None for nothing.
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
        """Gives all processes the chief's variables where they differ; all call it."""
        equalize_variables(self._strategy, self._shared)

    def compare_soon(self) -> None:
        """Lets all processes compare after a step that is to come."""
        self._agreement.ask(_COMPARE)

    def saved(self, step: int, is_end: bool) -> None:
        """To be called after this process saved, and whether it ends now.

        Others that wait are then taken in soon.
        """
        if self._membership is not None:
            self._membership.saved(step)
        if not is_end and self._newcomers():
            self._agreement.ask(_TAKE_IN)


class SaveCheckpoints(StepCounter):
    """Saves now and then and at the last step, never weights that are not finite.

    Where the run is told to stop it saves, too, and ends the run with `PreemptedError`, or with
    `NewcomersError` where workers wait. Before all save at the same step they compare their
    weights, else soon after.

    Saving stands at the end of a step, because `fit` overwrites the weights with their moving
    averages before it ends.

    Args:
        first_step: steps done before `fit`.
        manager: `tf.train.CheckpointManager`; None on processes that keep nothing and only look at
            the weights (they are those of the chief) so that all end at the same step.
        due: rule of `triggers`.
        last_step: step after which to save in any case, and at which all processes look.
        meetings: `Meetings`.
        is_due_on_all: whether it is due at the same steps on all processes. Default True. Otherwise
            weights that are not finite are left unsaved: the next loss ends the run on all.
        is_chief: whether this process is the chief, by whose clock others save what they keep.
            Default True.
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
    ):
        super().__init__(first_step)
        self._manager = manager
        self._due = due
        self._last_step = last_step
        self._meetings = meetings
        self._is_due_on_all = is_due_on_all
        self._copies = manager is not None and not is_chief

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Saves where it is due."""
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
    """Lets processes that keep what the chief keeps begin with it; all call it."""
    if run.membership is None or not run.membership.num_copies or not run.first_step:
        return
    with local_state.collected_state(run.model.optimizer, run.manager is not None):
        if run.manager is not None and not run.strategy.is_chief:
            checkpoints.write(run.manager, run.first_step)
            run.membership.saved(run.first_step)


def saving(run: "Run", meetings: Meetings) -> SaveCheckpoints:
    """`SaveCheckpoints` of a `run.Run`, by its configuration."""
    config = run.config.checkpoints
    by_time = config.save_interval_secs is not None
    # The clock is the chief's.
    is_chief = run.strategy.is_chief
    due = triggers.saving(config) if is_chief or not by_time else triggers.never
    is_due_on_all = not by_time or run.strategy.num_processes == 1
    if not is_due_on_all and local_steps_optimizer(run.model.optimizer) is not None:
        # All bring what they have of their own.
        due, is_due_on_all = local_steps.due_on_all(due, run.model.optimizer), True
    return SaveCheckpoints(
        run.first_step,
        run.manager,
        due,
        run.config.max_steps,
        meetings,
        is_due_on_all,
        is_chief,
    )

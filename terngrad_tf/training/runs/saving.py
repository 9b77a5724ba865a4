"""Saves a run; its processes compare their weights and stop together."""

import dataclasses
import typing
from collections.abc import Callable

from terngrad_tf.checkpoints import local_state
from terngrad_tf.common import preemption
from terngrad_tf.distribute import (
    NewcomersError,
    StepAgreement,
    equalize_variables,
    local_steps_optimizer,
)
from terngrad_tf.training.logs import triggers
from terngrad_tf.training.logs.callbacks import StepCounter
from terngrad_tf.training.logs.triggers import Trigger
from terngrad_tf.training.optimization import local_steps
from terngrad_tf.training.storage import checkpoints

if typing.TYPE_CHECKING:
    from terngrad_tf.training.runs.run import Run

# Requests to a `StepAgreement`.
STOP = "stop"
_TAKE_IN = "take_in"
_COMPARE = "compare"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When a process saves.

    Attributes:
        is_due: function of the number of steps done.
        is_common: whether saving is due at the same steps on all processes.
    """

    is_due: Trigger
    is_common: bool = True


def schedule_of(run: "Run") -> Schedule:
    """Returns the `Schedule` of this process."""
    config, optimizer = run.config.checkpoints, run.model.optimizer
    if config.save_interval_secs is None or run.strategy.num_processes == 1:
        return Schedule(triggers.saving(config))
    # Only the chief's clock counts.
    is_due = triggers.saving(config) if run.strategy.is_chief else triggers.never
    if local_steps_optimizer(optimizer) is None:
        return Schedule(is_due, is_common=False)
    # All processes contribute their state.
    return Schedule(local_steps.due_on_all(is_due, optimizer))


class SaveCheckpoints(StepCounter):
    """Saves on schedule and at the last step; all processes call it after each step.

    Processes with a common schedule compare their weights, then save; weights that are not finite
    end the run on all. If only the chief's clock counts, the chief saves alone, but no weights that
    are not finite: the next loss ends the run on all. The processes then compare after a later
    step, and those that keep copies save.

    SIGTERM, and workers that wait, make any step the last one; the run then ends with
    `PreemptedError` or `NewcomersError`.

    Saves within `fit`, which overwrites the weights with their moving averages before it returns.

    Args:
        agreement: sends the requests of each process, such as `STOP`, to all.
        exchanged: called after the exchange of local steps that saving may begin with.
        last_step_ended: called before the last step is saved.
        newcomers: returns the names of waiting workers.
    """

    def __init__(
        self,
        run: "Run",
        schedule: Schedule,
        agreement: StepAgreement,
        *,
        exchanged: Callable[[], None] = lambda: None,
        last_step_ended: Callable[[], None] = lambda: None,
        newcomers: Callable[[], str] = lambda: "",
    ):
        super().__init__(run.first_step)
        self._run = run
        self._schedule = schedule
        self._agreement = agreement
        self._exchanged = exchanged
        self._last_step_ended = last_step_ended
        self._newcomers = newcomers

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Saves if due."""
        requests = self._agreement.reached(self.step)
        is_due = self._schedule.is_due(self.step)
        is_last = self.step == self._run.config.max_steps
        reason = None if is_last else self._reason_to_stop(requests)
        is_end = is_last or reason is not None
        if is_end:
            self._last_step_ended()
        if is_end or (is_due and self._schedule.is_common):
            self._save_together(is_end)
        else:
            self._save_alone(is_due, _COMPARE in requests)
        if reason is not None:
            raise reason

    def _reason_to_stop(self, requests):
        """Returns the error that ends the run after saving, or None."""
        if STOP in requests:
            tasks = self._run.strategy.tasks
            who = "" if tasks is None else tasks.describe(requests[STOP])
            return preemption.PreemptedError(who, self.step)
        if _TAKE_IN in requests:
            return NewcomersError(self._newcomers() or "workers that wait", self.step)
        return None

    def _save_together(self, is_end):
        local_state.exchange_to_save(self.model.optimizer)
        self._exchanged()
        self._compare()
        self._save(is_end)

    def _save_alone(self, is_due, compares):
        keeps_copies = self._run.manager is not None and not self._run.strategy.is_chief
        if compares:
            self._compare()
        if is_due or (compares and keeps_copies):
            self._save(is_end=False, may_skip=True)
        if is_due:
            self._agreement.ask(_COMPARE)

    def _compare(self):
        """Assigns the chief's variables to processes that differ."""
        equalize_variables(self._run.strategy, self._run.shared)

    def _save(self, is_end, may_skip=False):
        """Saves and, unless the run ends, requests to take in waiting workers.

        `may_skip`: weights that are not finite are not saved, instead of ending the run.
        """
        manager, membership = self._run.manager, self._run.membership
        checkpoints.save(manager, self.model, self.step, ends_run=not may_skip)
        if manager is None:
            return
        if membership is not None:
            membership.saved(self.step)
        if not is_end and self._newcomers():
            self._agreement.ask(_TAKE_IN)


def copy_start(run: "Run") -> None:
    """Saves the initial state on processes that keep copies; all processes must call this."""
    if run.membership is None or not run.membership.num_copies or not run.first_step:
        return
    with local_state.collected_state(run.model.optimizer, run.manager is not None):
        if run.manager is not None and not run.strategy.is_chief:
            checkpoints.write(run.manager, run.first_step)
            run.membership.saved(run.first_step)

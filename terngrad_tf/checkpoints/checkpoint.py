"""The callback `Checkpoint`, which saves training and resumes it."""

import contextlib
import dataclasses
import logging
import math
import os
import pathlib
import sys
import tempfile
from typing import Any

import keras

from terngrad_tf.checkpoints import files
from terngrad_tf.checkpoints.best import Best
from terngrad_tf.checkpoints.building import build_optimizers
from terngrad_tf.checkpoints.comparison import warn_of_other_options
from terngrad_tf.checkpoints.files import Description, Position
from terngrad_tf.checkpoints.keys import renumbered
from terngrad_tf.checkpoints.newest import newest_beside, newest_of, newest_of_all
from terngrad_tf.checkpoints.sole_writer import SoleWriter
from terngrad_tf.checkpoints.state import ModelState, load_weights
from terngrad_tf.common import messages, preemption
from terngrad_tf.common.arguments import check, is_integer
from terngrad_tf.distribute import (
    Membership,
    NewcomersError,
    StepAgreement,
    all_gather_object,
    private,
    propagate_errors,
    run_on_all,
)
from terngrad_tf.distribute.communication.notices import tell
from terngrad_tf.distribute.communication.peers import Tasks, report_end

_STOP, _TAKE_IN = "stop", "take_in"

_logger = logging.getLogger(__name__)


class Checkpoint(keras.callbacks.Callback):
    """Saves training at intervals, and resumes it when `fit` is called again.

    Start the same script again: `fit` continues at the saved epoch and batch, and the result
    equals, to the bit, that of an uninterrupted run, including all optimizers that the model holds,
    batch-norm statistics, random seeds, and replicas' own states (steps of `DiLoCo`, accumulated
    gradients). The model needs no `call`, but built layers when training resumes. All processes of
    a cluster need the callback; the chief writes checkpoints and sends them to the others. If the
    number of workers or replicas changes, weights, optimizers and position stay, and replicas' own
    states are redistributed.

    Place it last in the list of callbacks: a checkpoint holds what the callbacks before it did at
    the same step, such as a lower learning rate.

    On SIGTERM, with which schedulers reclaim machines, all processes save after the same step and
    exit with status 75. `terngrad run --max-restarts` restarts them.

    With a `membership`, the workers of the cluster may change. If workers wait after a save, all
    processes save again and raise `NewcomersError`; `run_supervised` then restarts them.

    Example:
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    ...     for epochs in (1, 3):
    ...         history = model.fit(tf.ones([8, 1]), tf.ones([8, 1]), epochs=epochs, verbose=0,
    ...                             callbacks=[terngrad_tf.Checkpoint(folder)])
    ...     print(history.epoch)
    [1, 2]

    Args:
        folder: folder of the checkpoints, created if absent. Processes may share it.
        save_freq: "epoch", or the number of batches between checkpoints. The end of `fit` is always
            saved.
        keep: number of newest checkpoints to keep. Default 2.
        monitor: name of a value in the logs of `fit`, such as "val_loss". The best epoch's
            checkpoint is kept, too. Default: none.
        mode: "min" or "max", whichever is best. Default "auto": "max" for names of accuracies,
            areas under curves, precisions, recalls and scores, else "min".
        num_copies: number of further processes that write, each into its own `folder`, so that
            training survives the loss of the chief's machine. Default 0, or as in `membership`.
        skip_data: True if a resumed `fit` skips data already used. Default True. The order of
            shuffled data is exact if their seeds are set. With `steps_per_epoch`, all earlier
            batches are read again, otherwise only the current epoch's.
        membership: result of `join_cluster` with the same folder. Default: the workers stay.

    Raises:
        ValueError: an argument is out of range; or, in `fit`, `folder` is not writable, or holds
            only damaged checkpoints or those of other variables, or another run writes there; or
            the model's layers are not built.
        OSError: in `fit`, a checkpoint cannot be written.
        SystemExit: in `fit`, with status 75, after SIGTERM.
        NewcomersError: in `fit`, after a save, if workers wait to join.
    """

    runs_on_all_processes = True
    model: keras.Model

    def __init__(
        self,
        folder: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        *,
        keep: int = 2,
        monitor: str | None = None,
        mode: str = "auto",
        num_copies: int = 0,
        skip_data: bool = True,
        membership: Membership | None = None,
    ) -> None:
        super().__init__()
        is_path = isinstance(folder, str | os.PathLike) and str(folder)
        check(is_path, "folder", "must be a path", folder)
        is_freq = save_freq == "epoch" or is_integer(save_freq, 1)
        check(is_freq, "save_freq", "must be 'epoch' or a positive integer", save_freq)
        check(is_integer(keep, 1), "keep", "must be a positive integer", keep)
        check(is_integer(num_copies, 0), "num_copies", "must be an integer, 0 or more", num_copies)
        check(isinstance(skip_data, bool), "skip_data", "must be a bool", skip_data)
        if membership is not None:
            check(not num_copies, "num_copies", "must be that of `join_cluster`", num_copies)
            rule = f"must be that of `join_cluster`, {membership.folder}"
            is_same = pathlib.Path(folder).resolve() == membership.folder.resolve()
            check(is_same, "folder", rule, str(folder))
            num_copies = membership.num_copies
        # Without a strategy of this package, `fit` would not resume in the middle of its data.
        private.install_patches()
        # Training may change the working folder.
        self._folder = pathlib.Path(folder).absolute()
        # Processes compare the arguments that a callback keeps under their names.
        self.save_freq = save_freq
        self.keep = keep
        self.monitor = monitor
        self.mode = mode
        self.num_copies = num_copies
        self.skip_data = skip_data
        self._membership = membership
        self._best = Best(self._folder, monitor, mode)
        self._stack = contextlib.ExitStack()
        self._state: ModelState | None = None

    @property
    def latest(self) -> pathlib.Path | None:
        """Path of the newest checkpoint, or None."""
        return next(reversed(files.find(self._folder)), None)

    @property
    def best(self) -> pathlib.Path | None:
        """Path of the checkpoint with the best `monitor`, or None."""
        return self._best.path()

    @staticmethod
    def newest_step(folder: str | os.PathLike[str]) -> int | None:
        """Returns the number of steps done at the newest intact checkpoint in a folder, or None.

        Raises:
            ValueError: all checkpoints are damaged.
        """
        found = newest_of(pathlib.Path(folder))
        return None if found is None else found[0].position.step

    def load_weights(self, model: keras.Model, path: str | os.PathLike[str] | None = None) -> None:
        """Gives a built model the weights of a checkpoint, for evaluation or export.

        Args:
            model: built `keras.Model`, compiled or not.
            path: path of a checkpoint. Default: the best if `monitor` is set, else the newest.

        Raises:
            ValueError: the file is damaged, or its model has other variables.
            FileNotFoundError: there is no checkpoint.
        """
        path = path or (self.best if self.monitor else None) or self.latest
        if path is None:
            raise FileNotFoundError(f"{self._folder} holds no checkpoint")
        path = pathlib.Path(path)
        try:
            description, arrays, _ = files.read(path)
        except ValueError as error:
            if (other := newest_beside(path)) is None:
                raise
            raise ValueError(f"{error}; give an intact `path`, such as {other}") from error
        load_weights(model, description, arrays)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restores the model from the newest checkpoint."""
        self._strategy: Any = self.model.distribute_strategy
        self._tasks: Tasks | None = getattr(self._strategy, "tasks", None)
        index = 0 if self._tasks is None else self._tasks.index
        self._is_chief, self._saves = index == 0, index <= self.num_copies
        run_on_all(self._strategy, "the folder of checkpoints", self._prepare)
        self._state = None
        self._position = Position(0, first_epoch=None)
        self._saved_step = self._tried_step = 0
        # The chief of a membership has the newest state; others may have later steps of a part of
        # the run that was given up.
        num_copies = 0 if self._membership is not None else self.num_copies
        found = newest_of_all(self._strategy, self._folder, num_copies)
        if found is not None:
            self._resume(*found)
        known = all_gather_object(self._strategy, "best checkpoint", self._best.known())
        self._best.begin(known)
        self._begin_to_listen()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes the epoch."""
        private.forget_resumed(self.model)
        before = self._position
        batch = before.batch if epoch == before.epoch else 0
        first = epoch if before.first_epoch is None else before.first_epoch
        self._position = dataclasses.replace(
            before,
            epoch=epoch,
            batch=batch,
            steps=self.params.get("steps"),
            first_epoch=first,
            steps_per_execution=self.model.steps_per_execution,
        )

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves if a checkpoint is due or a process was asked to stop."""
        before, done = self._position, batch + 1
        if self.params.get("steps"):
            # The last group of batches of a step may be smaller.
            done = min(done, self.params["steps"])
        step = before.step + done - before.batch
        self._position = dataclasses.replace(before, step=step, batch=done)
        self._calls += 1
        asked = self._agreement.reached(self._calls)
        freq = self.save_freq
        is_due = isinstance(freq, int) and step // freq > before.step // freq
        if _STOP in asked:
            self._stop(asked[_STOP])
        elif _TAKE_IN in asked:
            self._take_in()
        elif is_due:
            self._save({})
            self._ask_to_take_in()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves if a checkpoint is due, or the epoch is the best or the last."""
        batches = self._position.batches_of_epoch or self._position.batch or None
        ended = {"epoch": epoch + 1, "batch": 0, "batches_of_epoch": batches}
        self._position = dataclasses.replace(self._position, **ended)
        values = _numbers(logs)
        improves = self._is_chief and self._best.improves(values, logs or ())
        is_last = epoch + 1 == self.params.get("epochs")
        if not is_last:
            # All save together; a callback may log the value on the chief alone.
            own = [improves, bool(self.model.stop_training)]
            found = all_gather_object(self._strategy, "end of an epoch", own)
            improves, is_last = (any(told) for told in zip(*found, strict=True))
        if improves or self.save_freq == "epoch" or is_last:
            self._save(values)
            if not is_last:
                self._ask_to_take_in()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Stops listening to signals."""
        private.forget_resumed(self.model)
        self._stack.close()
        if self._tried_step != self._position.step:
            rule = (
                "the last steps, %d to %d, are not saved: `Checkpoint` must follow the callback"
                " that stops training in the list of callbacks"
            )
            _logger.warning(rule, self._tried_step + 1, self._position.step)

    def _prepare(self):
        if not self._saves:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                self._writer = SoleWriter(self._folder)
        except OSError as error:
            raise ValueError(
                "`folder` must be a folder that can be written to. Received:"
                f" folder={str(self._folder)!r} ({error.strerror})"
            ) from error

    def _resume(self, description, arrays):
        position, ordered = description.position, {}
        run_on_all(
            self._strategy,
            "checkpoint",
            lambda: ordered.update(self._check(description, arrays)),
        )
        self._model_state().restore(ordered)
        self._position = position
        self._saved_step = self._tried_step = position.step
        if self._membership is not None:
            with propagate_errors(self._tasks):
                if self._saves:
                    self._copy_start(description, arrays)
        private.resume_fit(
            self.model,
            position.epoch,
            max(0, position.epoch - (position.first_epoch or 0)),
            position.batch,
            position.batches_of_epoch,
            position.steps_per_execution,
            self.skip_data,
        )
        if not self._is_chief:
            return
        warn_of_other_options(self._model_state().layers, description)
        _warn_of_other_steps(description, self.params.get("steps"))
        _warn_of_no_epochs(description, self.params.get("epochs"))
        if self.params.get("verbose"):
            tell(
                f"Going on from {description.path}: epoch {position.epoch + 1}, batch"
                f" {position.batch}"
            )

    def _check(self, description, arrays):
        """Returns the arrays by the keys of the model, which they fit."""
        description, arrays = renumbered(self.model, description, arrays)
        build_optimizers(self.model, description, arrays)
        self._model_state().check(description, arrays)
        return arrays

    def _model_state(self):
        """Returns the state of the model, which may have got variables in the last steps."""
        if self._state is None or not self._state.is_current:
            self._state = ModelState(self.model)
        return self._state

    def _copy_start(self, description, arrays):
        """Gives a writer the checkpoint from which the members begin."""
        step = description.position.step
        path = files.path_of(self._folder, step)
        found = [one for one in files.find(self._folder) if one <= path]
        files.remove_all_but(self._folder, found)
        if description.path != path:  # it came from the chief; a file there is damaged or another
            self._write(dataclasses.replace(description, path=path), arrays)
            self._writer.wrote(path)
        self._membership.saved(step)

    def _save(self, values):
        step = self._position.step
        if step == self._saved_step and not values:
            return
        self._tried_step = step
        state = self._model_state()
        variable = state.not_finite()
        if state.has_own:
            # Statistics of processes differ between exchanges; all save together.
            found = all_gather_object(self._strategy, "non-finite variable", variable)
            variable = next(filter(None, found), None)
        if variable is not None:
            _logger.warning("not saved at step %d: %s is not finite", step, variable)
            return
        self._saved_step = step
        with propagate_errors(self._tasks):
            collected = state.collect(self._saves)
            if collected is None:
                return
            arrays, paths = collected
            path = files.path_of(self._folder, step)
            # Copies may share a folder.
            self._writer.check([path] if self.num_copies else [])
            self._writer.remove_unfinished()
            described = {"model": state.layers, "trained": state.trained}
            self._write(Description(path, self._position, paths, values, **described), arrays)
            # Later ones are damaged, or this run would have begun there.
            newest = [one for one in files.find(self._folder) if one <= path][-self.keep :]
            best = self._best.path() if self.monitor else None
            files.remove_all_but(self._folder, [*newest, *([best] if best else [])])
            self._writer.wrote(path)
            if self._membership is not None:
                self._membership.saved(step)

    def _write(self, description, arrays):
        try:
            files.write(description, arrays)
        except OSError as error:
            why = f"the checkpoint cannot be written: {error.strerror}"
            raise OSError(error.errno, why, str(description.path)) from error

    def _begin_to_listen(self):
        private.exit_after_fit(self.model, self._stack)
        self._calls = 0
        tasks = self._tasks
        self._agreement = self._stack.enter_context(StepAgreement(self._strategy, 0))
        self._newcomers = lambda: ""
        if self._membership is not None:
            self._newcomers = self._stack.enter_context(self._membership.watch())
        self._last_step_ended = self._stack.enter_context(
            preemption.stops_on_sigterm(
                lambda: self._agreement.ask(_STOP),
                lambda: tasks is not None or self._calls > 0,
                lambda error: report_end(tasks, error),
            )
        )

    def _stop(self, asking):
        self._last_step_ended()
        self._save({})
        who = "" if self._tasks is None else self._tasks.describe(asking)
        error = preemption.PreemptedError(who, self._position.step, self._saved_step)
        self._end(error)
        program = os.path.splitext(os.path.basename(sys.argv[0]))[0] or "python"
        line = messages.with_code(f"{program}: {error}; the same command goes on")
        print(line, file=sys.stderr, flush=True)
        raise SystemExit(preemption.STATUS) from error

    def _ask_to_take_in(self):
        if self._newcomers():
            self._agreement.ask(_TAKE_IN)

    def _take_in(self):
        self._last_step_ended()
        self._save({})
        who = self._newcomers() or "workers that wait"
        error = NewcomersError(who, self._position.step, self._saved_step)
        self._end(error)
        raise error

    def _end(self, error):
        self._stack.__exit__(type(error), error, None)
        # The first process to end must not lose the others' messages.
        all_gather_object(self._strategy, "end", "ended", is_last=lambda values: True)


def _warn_of_other_steps(description, steps):
    """Warns if the batches of an epoch, in whose middle the checkpoint was saved, have changed."""
    position = description.position
    if position.batch and position.steps and steps and position.steps != steps:
        _logger.warning(
            "%s was saved after batch %d of %d of epoch %d, which has %d batches now: this epoch"
            " leaves out examples or repeats some",
            *(description.path, position.batch, position.steps, position.epoch + 1, steps),
        )


def _warn_of_no_epochs(description, epochs):
    """Warns if no epoch is left: the folder may be that of another training, such as a fold's."""
    if epochs is not None and description.position.epoch >= epochs:
        _logger.warning(
            "%s ends epoch %d of %d, so `fit` trains nothing: another training, such as of another"
            " fold, needs another `folder`",
            *(description.path, description.position.epoch, epochs),
        )


def _numbers(logs):
    """Returns the logs that are finite numbers."""
    numbers = {}
    for name, value in (logs or {}).items():
        with contextlib.suppress(TypeError, ValueError):
            if math.isfinite(number := float(value)):
                numbers[name] = number
    return numbers

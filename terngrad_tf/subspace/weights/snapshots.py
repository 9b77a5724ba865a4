"""A callback that saves weight snapshots during training."""

import fractions
import math
import pathlib
from typing import Any

import keras

from terngrad_tf.common.arguments import as_fraction, check, check_integer
from terngrad_tf.common.files import PathLike
from terngrad_tf.subspace.weights import snapshot_files, variables


class SnapshotCheckpoint(keras.callbacks.Callback):
    """Saves the trainable weights regularly, for a principal component analysis.

    Each snapshot is a safetensors file `snapshot-<step>.safetensors` with the float32 weights by
    name, written atomically. The optimizer's step names the file, so that a resumed run continues
    the sequence; a repeated step replaces its file.

    With `per_epoch` p, and epochs counted from `start_epoch`, the j-th snapshot is taken at the end
    of the step that completes j / p epochs. With `DiLoCo`, a snapshot within an epoch holds the
    weights of the last exchange.

    Example:
        >>> model.fit(x, y, epochs=6, verbose=0, callbacks=[
        ...     SnapshotCheckpoint(directory, start_epoch=2, per_epoch=2)]).epoch[-1]
        5
        >>> len(list(pathlib.Path(directory).iterdir()))
        8

    Args:
        directory: folder of the files, created if missing.
        start_epoch: number of epochs to skip at the start. Default 0.
        per_epoch: snapshots per epoch; 0.5 takes one every two epochs. Default 1.
        every_steps: steps between snapshots, instead of `per_epoch`. Default: none.
        keep_max: number of snapshots to keep, those with the highest steps. Default: all.
        steps_per_epoch: steps per epoch, possibly fractional, to count epochs by the optimizer's
            steps. Default: epochs of `fit`.
        starts_over: whether a run at step 0 may find snapshots, from its own interrupted start.
            Default False: it refuses them.
        every_process: whether each process of a cluster writes, to its own folder. Default False:
            only the chief.

    Raises:
        ValueError: an argument is out of range; the folder holds snapshots of another network or
            another run (a run at step 0 finds snapshots); the model has no optimizer; or
            `per_epoch` is above 1 and the data set's length is unknown.

    Source: Li et al., "Low Dimensional Trajectory Hypothesis is True: DNNs Can Be Trained in Tiny
    Subspaces", TPAMI 2022.
    """

    def __init__(
        self,
        directory: PathLike,
        *,
        start_epoch: int = 0,
        per_epoch: float | fractions.Fraction | None = None,
        every_steps: int | None = None,
        keep_max: int | None = None,
        steps_per_epoch: float | fractions.Fraction | None = None,
        starts_over: bool = False,
        every_process: bool = False,
    ) -> None:
        super().__init__()
        if per_epoch is not None and every_steps is not None:
            raise ValueError(
                "`every_steps` must not be given together with `per_epoch`. "
                f"Received: per_epoch={per_epoch!r}, every_steps={every_steps!r}"
            )
        check_integer("start_epoch", start_epoch, 0)
        for name, value in (("every_steps", every_steps), ("keep_max", keep_max)):
            if value is not None:
                check_integer(name, value)
        check(
            steps_per_epoch is None or 0 < steps_per_epoch < float("inf"),
            "steps_per_epoch",
            "must be a positive number",
            steps_per_epoch,
        )
        per_epoch = 1 if per_epoch is None else per_epoch
        is_number = isinstance(per_epoch, int | float | fractions.Fraction)
        is_number = is_number and not isinstance(per_epoch, bool)
        is_positive = is_number and 0 < per_epoch < float("inf")
        check(is_positive, "per_epoch", "must be a positive number", per_epoch)
        # Training may change the working folder.
        self._directory = pathlib.Path(directory).absolute()
        self._start_epoch = start_epoch
        self._per_epoch = as_fraction(per_epoch)
        self._every_steps = every_steps
        self._keep_max = keep_max
        self._epoch_steps = None if steps_per_epoch is None else as_fraction(steps_per_epoch)
        self._starts_over = starts_over
        self._every_process = every_process
        self._epoch = 0
        self._done = 0
        self._step = 0
        self._saved_step: int | None = None
        self._is_checked = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Notes that the folder is to be checked; refuses a model without an optimizer."""
        self._is_checked = False
        optimizer: Any = self.model.optimizer
        rule = "must be compiled with an optimizer, whose steps name the snapshots"
        check(optimizer is not None, "model", rule, self.model.name)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Records the start of the epoch; checks the folder before the first."""
        self._epoch = epoch
        self._done = 0
        self._step = self._optimizer_step()
        if not self._is_checked:
            # Callbacks that resume a run, in any order, have restored the step by now.
            self._check_folder()
            self._is_checked = True

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Records the batches before, which a resumed run does not repeat."""
        self._done = batch

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes a snapshot if one is due within an epoch."""
        before = self._step, self._done
        self._step, self._done = self._optimizer_step(), batch + 1
        if self._has_started() and self._num_due(*before) < self._num_due(self._step, self._done):
            self._save()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes the snapshot of an epoch of unknown length.

        Also replaces that of the epoch's last step if optimizers have exchanged changes since.
        """
        if self._saved_step == self._optimizer_step():
            extended: Any = self.model.distribute_strategy.extended
            if getattr(extended, "takes_local_steps", False):
                self._save()
        counts_steps = self._every_steps is not None or self._epoch_steps is not None
        if counts_steps or epoch < self._start_epoch or self._steps_per_epoch():
            return
        epochs = epoch - self._start_epoch
        if int(epochs * self._per_epoch) < int((epochs + 1) * self._per_epoch):
            self._save()

    def _has_started(self):
        if self._epoch_steps is not None:
            return self._step > self._start_epoch * self._epoch_steps
        return self._epoch >= self._start_epoch

    def _num_due(self, step, done):
        """Returns the number of snapshots due after `step` steps, `done` of them in this epoch."""
        if self._every_steps is not None:
            return step // self._every_steps
        if self._epoch_steps is not None:
            epochs = fractions.Fraction(step) / self._epoch_steps
        else:
            # `on_epoch_end` takes the snapshots of epochs of unknown length.
            steps = self._steps_per_epoch()
            epochs = self._epoch + (fractions.Fraction(done, steps) if steps else 0)
        return max(0, math.floor((epochs - self._start_epoch) * self._per_epoch))

    def _steps_per_epoch(self):
        """Returns the number of steps in an epoch of `fit`; None if unknown."""
        steps = self.params.get("steps")
        if steps is None and self._per_epoch > 1:
            raise ValueError(
                "`per_epoch` must be at most 1 if the number of steps per epoch is unknown; "
                f"use `every_steps`. Received: per_epoch={float(self._per_epoch):g}"
            )
        return steps

    def _check_folder(self):
        """Refuses a folder with snapshots of another run or network."""
        found = snapshot_files.find_snapshots(self._directory)
        if found and self._step == 0 and not self._starts_over:
            raise ValueError(
                "`directory` must be empty or hold snapshots of a resumed run. Received:"
                f" directory={str(self._directory)!r}, which holds {len(found)} snapshots of"
                " another run, while this one is at step 0"
            )
        if found and self.model.built:
            variables.check_same_layout(
                variables.layout_of(self.model.trainable_variables),
                snapshot_files.open_snapshot(found[-1]).layout,
                "the model",
                str(found[-1]),
            )

    def _optimizer_step(self):
        return int(self.model.optimizer.iterations.numpy())

    def _save(self):
        model: Any = self.model
        is_chief = getattr(model.distribute_strategy.extended, "should_checkpoint", True)
        if not is_chief and not self._every_process:
            return
        self._saved_step = self._optimizer_step()
        snapshot_files.save_snapshot(model, self._directory, self._saved_step)
        if self._keep_max is not None:
            for path in snapshot_files.find_snapshots(self._directory)[: -self._keep_max]:
                path.unlink()

"""Checkpoints on disk: finds, restores and saves them, also on a full disk."""

import contextlib
import errno
import glob
import logging
import os
import pathlib
import re
import shutil
import traceback
from collections.abc import Iterator

import keras
import tensorflow as tf

from terngrad_tf.checkpoints import local_state
from terngrad_tf.checkpoints.state import first_not_finite
from terngrad_tf.common.files import open_regular
from terngrad_tf.training.errors import DivergedError, UserError
from terngrad_tf.training.log import log

NAME = "model.ckpt"
_STATE_FILE = "checkpoint"
_MAX_STATE_BYTES = 2**24


def latest_checkpoint(folder: str | os.PathLike) -> str | None:
    """Returns the path of a folder's newest checkpoint, without ".index", or None.

    Raises:
        UserError: the folder's list of checkpoints is damaged.
    """
    path = os.path.join(folder, _STATE_FILE)
    try:
        with open_regular(path) as file:
            size = len(file.read(_MAX_STATE_BYTES))
        if size == _MAX_STATE_BYTES:
            raise ValueError("it is too long")
        with _silent(logging.getLogger("tensorflow")):
            if size and tf.train.get_checkpoint_state(str(folder)) is None:
                raise ValueError("it lists no checkpoints")
            return tf.train.latest_checkpoint(str(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, tf.errors.OpError) as error:
        raise UserError(f"{path} is damaged: {_reason(error)}") from error


@contextlib.contextmanager
def _silent(logger):
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def restore(checkpoint: tf.train.Checkpoint, path: str) -> None:
    """Restores all variables of a checkpoint from a file, which may hold further values."""
    with reading(path):
        # On release of a file, TensorFlow warns about variables that were not restored, possibly
        # after the line that reports the damage. Release the file here, without the warning.
        try:
            status = checkpoint.restore(path).expect_partial()
        except Exception as error:
            with _silent(logging.getLogger("tensorflow")):
                traceback.clear_frames(error.__traceback__)
            raise
        try:
            status.assert_existing_objects_matched()
        except AssertionError as error:
            raise UserError(
                f"{path} holds other variables than this run{_missing(error)}. It was saved with"
                " another network, optimizer or version of terngrad_tf; train in another folder"
            ) from error


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns every effect of a damaged checkpoint into one error.

    Raises:
        UserError: the file is damaged, or of something else.
    """
    try:
        parts = [
            part
            for part in glob.glob(f"{glob.escape(str(path))}*")
            if part in (path, f"{path}.index") or part.startswith(f"{path}.data-")
        ]
        if not parts:
            raise UserError(f"{path} is missing: bring its files back, or take another folder")
        for part in parts:
            open_regular(part).close()
        yield
    except UserError:
        raise
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise UserError(f"{path} cannot be restored: it does not fit the memory") from error
    except Exception as error:  # TensorFlow trusts the content of files
        raise UserError(
            f"{path} is damaged, or holds other variables than this run: {_reason(error)}"
        ) from error


def _missing(error):
    """Returns the number of variables that a file lacks and one name, from TensorFlow's error."""
    count = re.search(r"Found (\d+) Python objects", str(error))
    name = re.search(r"<tf\.Variable '([^']+?)(?::0)?'", str(error))
    if not count or not name:
        return ""
    return f": it lacks {count.group(1)} of them, such as {name.group(1)!r}"


def _reason(error):
    """Returns the first line of an error, or its type."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = getattr(error, "message", None) or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def newest_step(folder: str | os.PathLike) -> int | None:
    """Returns the step of the newest checkpoint in a folder, or None."""
    newest = latest_checkpoint(folder)
    return None if newest is None else step_of(newest)


def step_of(checkpoint: str) -> int:
    """Returns the step of a checkpoint from its name: with loss scaling, optimizers skip steps."""
    digits = checkpoint.rpartition("-")[2]
    if not re.fullmatch("[0-9]{1,18}", digits):
        raise UserError(f"{checkpoint} must be a checkpoint whose name ends in its step: -400")
    return int(digits)


def make_manager(
    checkpoint: tf.train.Checkpoint, folder: str | os.PathLike, max_to_keep: int
) -> tf.train.CheckpointManager:
    """Returns the run's `tf.train.CheckpointManager`; checks the folder's list of checkpoints."""
    latest_checkpoint(folder)
    return tf.train.CheckpointManager(
        checkpoint, str(folder), max_to_keep=max_to_keep, checkpoint_name=NAME
    )


def resume(manager: tf.train.CheckpointManager) -> int | None:
    """Restores the newest checkpoint and returns its step, or None."""
    newest = manager.latest_checkpoint
    if not newest:
        return None
    restore(manager.checkpoint, newest)
    log(f"resuming from {newest} at step {step_of(newest)}")
    return step_of(newest)


def save(
    manager: tf.train.CheckpointManager | None, model: keras.Model, step: int, ends_run: bool = True
) -> None:
    """Saves a run with finite weights; if saving fails, the checkpoints stay unchanged.

    Args:
        manager: None on processes that only check the weights, so that all end at the same step.
        ends_run: True raises an error for weights that are not finite; False logs them and does not
            save.

    Raises:
        OSError: the file, which it names, cannot be written.
    """
    path = first_not_finite(model.weights + model.optimizer.variables)
    if path is not None and ends_run:
        raise DivergedError(f"the variable {path}", step, last_good(manager))
    if path is not None:
        log(f"not saved at step {step}: the variable {path} is not finite")
    else:
        with local_state.collected_state(model.optimizer, manager is not None):
            if manager is not None:
                write(manager, step)


def last_good(manager: tf.train.CheckpointManager | None) -> str | None:
    """Returns the newest checkpoint's name for `DivergedError`."""
    return "that of worker 0" if manager is None else manager.latest_checkpoint


def write(manager: tf.train.CheckpointManager, step: int) -> None:
    """Saves the current values; if this fails, the checkpoints stay unchanged.

    A checkpoint of the same step is replaced once the new one is whole.
    """
    name = f"{NAME}-{step}"
    prefix = written = os.path.join(manager.directory, name)
    try:
        if os.path.basename(manager.latest_checkpoint or "") == name:
            written = os.path.join(manager.directory, f".{name}")
            manager.checkpoint.write(written)
            _rename(written, prefix)
        else:
            manager.save(checkpoint_number=step)
    except tf.errors.OpError as error:
        _remove_part(written)
        number = errno.ENOSPC if isinstance(error, tf.errors.ResourceExhaustedError) else errno.EIO
        # The system's reason is last.
        reason = _reason(error).partition(" [Op:")[0].rpartition("; ")[2]
        raise OSError(number, reason, prefix) from error


def _rename(prefix, new_prefix):
    """Renames the files of a checkpoint; the index, which describes the data, comes last."""
    for path in sorted(glob.glob(f"{glob.escape(prefix)}.*")):
        os.replace(path, new_prefix + path.removeprefix(prefix))


def _remove_part(prefix):
    """Removes the files of an unfinished checkpoint."""
    shutil.rmtree(f"{prefix}_temp", ignore_errors=True)
    for path in glob.glob(f"{glob.escape(prefix)}.*"):
        pathlib.Path(path).unlink(missing_ok=True)

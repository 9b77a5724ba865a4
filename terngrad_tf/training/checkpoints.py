"""Checkpoints on disk: the newest one, what it restores, and saving where the disk may be full."""

import contextlib
import errno
import glob
import logging
import os
import pathlib
import shutil

import tensorflow as tf

from terngrad_tf.files import open_regular
from terngrad_tf.training.errors import UserError

NAME = "model.ckpt"
_STATE_FILE = "checkpoint"
_MAX_STATE_BYTES = 2**24


def latest(folder):
    """Path of the newest checkpoint in a folder, without ".index"; None where there is none.

    Raises:
        UserError: the folder's file of what was saved is damaged.
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


def restore(checkpoint, path, partial=False):
    """Gives variables the values in a file, all of them that `checkpoint` holds.

    Args:
        checkpoint: `tf.train.Checkpoint`.
        path: path of the file without ".index".
        partial: whether the file may hold more than `checkpoint`. Default False.

    Raises:
        UserError: the file is damaged, or of something else.
    """
    with reading(path):
        status = checkpoint.restore(path)
        status.assert_existing_objects_matched()
        if partial:
            status.expect_partial()


@contextlib.contextmanager
def reading(path):
    """Around what reads a checkpoint: whatever comes of damage is one error.

    Args:
        path: path of the file without ".index".

    Raises:
        UserError: the file is damaged, or of something else.
    """
    try:
        for part in glob.glob(f"{glob.escape(str(path))}*"):
            if part in (path, f"{path}.index") or part.startswith(f"{path}.data-"):
                open_regular(part).close()
        yield
    except UserError:
        raise
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise UserError(f"{path} cannot be restored: it does not fit the memory") from error
    except Exception as error:  # TensorFlow trusts what it reads.
        raise UserError(
            f"{path} is damaged, or holds other variables than this run: {_reason(error)}"
        ) from error


def _reason(error):
    """The first line of an error, or its type."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = getattr(error, "message", None) or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def save(manager, step):
    """Saves, or leaves the checkpoints as they were.

    Args:
        manager: `tf.train.CheckpointManager`, its checkpoints called `NAME`.
        step: steps done.

    Raises:
        OSError: the file, which it names, cannot be written.
    """
    try:
        manager.save(checkpoint_number=step)
    except tf.errors.OpError as error:
        prefix = os.path.join(manager.directory, f"{NAME}-{step}")
        _remove_part(prefix)
        number = errno.ENOSPC if isinstance(error, tf.errors.ResourceExhaustedError) else errno.EIO
        # TensorFlow puts the system's reason last.
        reason = _reason(error).partition(" [Op:")[0].rpartition("; ")[2]
        raise OSError(number, reason, prefix) from error


def _remove_part(prefix):
    """Removes what TensorFlow wrote of a checkpoint that it could not finish."""
    shutil.rmtree(f"{prefix}_temp", ignore_errors=True)
    for path in glob.glob(f"{glob.escape(prefix)}.*"):
        pathlib.Path(path).unlink(missing_ok=True)

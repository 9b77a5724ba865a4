"""Keras' callbacks with which several processes of a machine would write to one file."""

import contextlib
import itertools
import os
import pathlib
import platform
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute.consistency.callback_settings import flat_callbacks
from terngrad_tf.distribute.consistency.descriptions import digest
from terngrad_tf.distribute.consistency.digests import gather_digests

# {callback: attribute with its path}. Others, and subclasses, may do more than write.
_WRITERS = {
    keras.callbacks.CSVLogger: "filename",
    keras.callbacks.ModelCheckpoint: "filepath",
    keras.callbacks.TensorBoard: "log_dir",
    keras.callbacks.BackupAndRestore: "backup_dir",
}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def writing_to_files_of_chief(strategy: tf.distribute.Strategy, callbacks: Any) -> list[Any]:
    """Returns `fit`'s callbacks of this process that would write to the chief's files.

    All processes call it. Files differ between machines or containers.
    """
    flat = flat_callbacks(callbacks)
    of_kinds = [[callback for callback in flat if type(callback) is kind] for kind in _WRITERS]
    digests = []
    for attribute, of_kind in zip(_WRITERS.values(), of_kinds, strict=True):
        places = [_place(getattr(callback, attribute)) for callback in of_kind]
        # Without such a callback, equal to no other process's.
        digests.append(digest(places or [os.getpid(), attribute]))
    of_processes = gather_digests(strategy, digests)
    if strategy.is_chief:
        return []
    are_same = of_processes[strategy.process_index] == of_processes[0]
    return [callback for of_kind in itertools.compress(of_kinds, are_same) for callback in of_kind]


def _place(path):
    """Identifies a file, even before it exists, by its nearest existing folder and the rest."""
    path = pathlib.Path(path).absolute()
    folder = next(folder for folder in (path, *path.parents) if folder.exists())
    status, machine = folder.stat(), platform.node()
    with contextlib.suppress(OSError):  # only Linux tells it
        machine = pathlib.Path(_BOOT_ID).read_text(encoding="ascii")
    return [machine, status.st_dev, status.st_ino, str(path.relative_to(folder))]

"""Keras' callbacks with which several processes of a machine would write to one file."""

import contextlib
import os
import pathlib
from typing import Any

import keras

from terngrad_tf.distribute.consistency.descriptions import digest

# {callback: attribute with its path}. Others, and subclasses, may do more than write.
_WRITERS = {
    keras.callbacks.CSVLogger: "filename",
    keras.callbacks.ModelCheckpoint: "filepath",
    keras.callbacks.TensorBoard: "log_dir",
    keras.callbacks.BackupAndRestore: "backup_dir",
}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def writers(callbacks: Any) -> list[list[Any]]:
    """Returns `fit`'s callbacks of each kind: a list of lists."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    flat = keras.tree.flatten(callbacks)
    return [[callback for callback in flat if type(callback) is kind] for kind in _WRITERS]


def files_of(callbacks: Any) -> list[bytes]:
    """Returns 16 bytes for the files of each kind, equal if processes write to the same files.

    They differ without such a callback, and between machines or containers.
    """
    found = []
    for attribute, of_kind in zip(_WRITERS.values(), writers(callbacks), strict=True):
        places = [_place(getattr(callback, attribute)) for callback in of_kind]
        found.append(digest(places or [os.getpid(), attribute]))
    return found


def _place(path):
    """Identifies a file, even before it exists, by its nearest existing folder and the rest."""
    path = pathlib.Path(path).absolute()
    folder = next(folder for folder in (path, *path.parents) if folder.exists())
    status, boot = folder.stat(), ""
    with contextlib.suppress(OSError):
        boot = pathlib.Path(_BOOT_ID).read_text(encoding="ascii")
    return [boot, status.st_dev, status.st_ino, str(path.relative_to(folder))]

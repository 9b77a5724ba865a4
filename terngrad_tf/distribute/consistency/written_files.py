"""Callbacks of Keras that write to one file from several processes of a machine."""

import contextlib
import os
import pathlib
from typing import Any

import keras

from terngrad_tf.distribute.consistency.descriptions import digest

# What each writes to. Others, and classes derived from these, may do more than write.
_WRITERS = {
    keras.callbacks.CSVLogger: "filename",
    keras.callbacks.ModelCheckpoint: "filepath",
    keras.callbacks.TensorBoard: "log_dir",
    keras.callbacks.BackupAndRestore: "backup_dir",
}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def writers(callbacks: Any) -> list[list[Any]]:
    """The callbacks of each kind among those given to `fit`: a list of lists."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    flat = keras.tree.flatten(callbacks)
    return [[callback for callback in flat if type(callback) is kind] for kind in _WRITERS]


def files_of(callbacks: Any) -> list[bytes]:
    """What each kind writes to: 16 bytes that are those of another process if it is the same.

    They differ where there is no callback of that kind, and between machines or containers, which
    may have files of their own at the same path.
    """
    found = []
    for attribute, of_kind in zip(_WRITERS.values(), writers(callbacks), strict=True):
        places = [_place(getattr(callback, attribute)) for callback in of_kind]
        found.append(digest(places or [os.getpid(), attribute]))
    return found


def _place(path):
    """What tells a file apart that need not exist yet: its nearest folder that does, and names."""
    path = pathlib.Path(path).absolute()
    folder = next(folder for folder in (path, *path.parents) if folder.exists())
    status, boot = folder.stat(), ""
    with contextlib.suppress(OSError):
        boot = pathlib.Path(_BOOT_ID).read_text(encoding="ascii")
    return [boot, status.st_dev, status.st_ino, str(path.relative_to(folder))]

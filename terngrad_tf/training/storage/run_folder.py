"""The folder of a run: its owner and its run. This module never deletes a run's files."""

import fcntl
import fnmatch
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from terngrad_tf import models
from terngrad_tf.common import strict_json
from terngrad_tf.common.arguments import shown
from terngrad_tf.common.files import atomic_write
from terngrad_tf.training.configs import checks
from terngrad_tf.training.errors import UserError, writing_into
from terngrad_tf.training.log import log

RUN_FILE = "run.json"
SNAPSHOT_FOLDER = "checkpoint_pca"
PICTURE_FILE = "subspace.png"
_LOCK_FILE = ".lock"
_MAX_DIFFERENCES_SHOWN = 6
# What a run leaves that never saved: its description and logs.
_BEFORE_CHECKPOINTS = (RUN_FILE, "events.out.tfevents.*", "telemetry.jsonl")


def read_run(folder: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the checked description of a folder's run, or None.

    It has "identity", "max_steps", "model" and, in newer runs, "options" and "working_folder".

    Raises:
        UserError: run.json is unreadable or incomplete.
    """
    description = _read(folder)
    if description is not None:
        path = pathlib.Path(folder) / RUN_FILE
        _check(path, description, _DESCRIPTION)
        _check(path, description["model"], _MODEL, "model.")
        _check(path, description["identity"], _IDENTITY, "identity.")
    return description


def data_dir_of(run: Mapping[str, Any]) -> str | None:
    """Returns the folder of a run's data, if known; it leads there from any working folder."""
    known = (run.get("options") or {}).get("data_dir")
    return known and os.path.join(run.get("working_folder") or "", known)


def _read(folder):
    path = pathlib.Path(folder) / RUN_FILE
    try:
        description = strict_json.read_json(path)
        if not isinstance(description, dict) or not isinstance(description.get("identity"), dict):
            raise ValueError("no identity in it")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); name another train_dir") from error
    return description


def _differences(held, wanted, before):
    """Returns what differs between a described run and the wanted identity."""
    keys = sorted({*held["identity"], *wanted})
    # An older run may have written the option among all options.
    there = {**before, **(held.get("options") or {}), **held["identity"]}
    wanted = {**before, **wanted}
    return [
        f"{key}: {there.get(key, 'nothing')!r} there, {wanted.get(key, 'nothing')!r} asked for"
        for key in keys
        if there.get(key) != wanted.get(key)
    ]


def _check(path, section, fields, prefix=""):
    for name, is_right in fields.items():
        if not is_right(section.get(name)):
            rule = "damaged" if name in section else "incomplete"
            raise UserError(
                f"{path} is {rule}: {prefix}{name} is not what a program writes there. "
                f"Received: {shown(section.get(name))}"
            )


def _is(allowed, optional=False):
    """Returns a check that a value is in a `checks.Range` or, if `optional`, missing."""

    def is_right(value):
        if value is None:
            return optional
        try:
            allowed("", value)
        except UserError:
            return False
        return True

    return is_right


def _is_a(*kinds):
    return lambda value: isinstance(value, kinds)


_DESCRIPTION = {
    "identity": _is_a(dict),
    "max_steps": _is(checks.COUNT_OR_0),
    "steps_per_epoch": _is(checks.Range(0, 2**31, above=True), optional=True),
    "model": _is_a(dict),
    "steps_before": _is(checks.COUNT_OR_0, optional=True),
    # All options, for reports, and the folder from which relative paths among them lead.
    "options": _is_a(dict, type(None)),
    "working_folder": _is_a(str, type(None)),
}
_MODEL = {
    "net": lambda value: value in models.available(),
    "num_classes": _is(checks.integers(1, 2**20)),
    "image_size": _is(checks.PIXELS),
    "channels": _is(checks.integers(1, 2**10)),
}
# For evaluation, and for training from this run's weights.
_IDENTITY = {
    "dataset_name": _is_a(str),
    "net": _is_a(str),
    "optimizer": _is_a(str),
    "image_size": _is(checks.PIXELS),
    "batch_size": _is(checks.COUNT),
    "seed": _is(checks.SEED),
    "num_nodes": _is(checks.WORKERS),
    "num_classes": _is(checks.COUNT, optional=True),
    "num_hosts": _is(checks.COUNT, optional=True),
    "size_to_binarize": _is(checks.COUNT),
    "weight_decay": _is(checks.FACTOR),
    "dropout_keep_prob": _is(checks.Range(0, 1, above=True)),
    "label_smoothing": _is(checks.Range(0, 1, below=True), optional=True),
    "initial_learning_rate": _is(checks.FACTOR, optional=True),
    "sync_every": _is(checks.COUNT_OR_0, optional=True),
    "sync_seconds": _is(checks.SECONDS, optional=True),
    "outer_momentum": _is(checks.Range(0, 1), optional=True),
    "fragments": _is(checks.COUNT, optional=True),
    "overlap": _is(checks.COUNT_OR_0, optional=True),
    "overlap_alpha": _is(checks.Range(0, 1), optional=True),
}


class RunFolder:
    """Claims a folder for a run until `close` or the end of the process.

    A new or empty folder takes the run, as does that of another run that never saved; a folder that
    holds the same run resumes it; any other folder is refused.

    Args:
        identity: flat dict of what defines the run.
        before: values of runs that are older than an option; see `option`.
        **details: further JSON values to describe the run; the latest are kept.

    Raises:
        UserError: the folder is not writable, is in use by another process, or holds another run or
            other files.

    Example:
        >>> import tempfile
        >>> folder = RunFolder(tempfile.mkdtemp() + "/run", {"net": "lenet"}, max_steps=10)
        >>> json.loads((folder.path / RUN_FILE).read_text())["identity"]
        {'net': 'lenet'}
    """

    def __init__(
        self,
        path: str | os.PathLike,
        identity: Mapping[str, Any],
        before: Mapping[str, Any] | None = None,
        **details: Any,
    ):
        self.path = pathlib.Path(path)
        self._lock = None
        checks.folder("train_dir", path)
        with writing_into("train_dir", path):
            self.path.mkdir(parents=True, exist_ok=True)
            # Neither waits for a pipe nor follows a link.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self.path / _LOCK_FILE, flags, 0o666)
            self._lock = open(descriptor, "rb", buffering=0)  # noqa: SIM115 (held while it lives)
        try:
            self._claim(identity, before or {}, details)
        except BaseException:
            self.close()
            raise

    def _claim(self, identity, before, details):
        is_guarded = False
        try:
            fcntl.flock(self._lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_guarded = True
        except BlockingIOError as error:
            raise UserError(
                "`train_dir` must not be in use by another process. "
                f"Received: train_dir={str(self.path)!r}"
            ) from error
        except OSError:
            pass  # a file system without locks; the run continues without this guard
        held = _read(self.path)
        if held is None:
            self._refuse_foreign_files()
        elif differences := _differences(held, identity, before):
            # Without a guard, that run may be about to save.
            if not is_guarded or not self._never_saved():
                self._refuse_other_run(differences)
            log(f"{self.path} takes this run: the one before never saved, with {differences[0]}")
        description = {"identity": identity, **details}
        if held != description:
            with (
                writing_into("train_dir", self.path, PermissionError),
                atomic_write(self.path / RUN_FILE) as beside,
                open(beside, "w", encoding="utf-8") as file,
            ):
                file.write(json.dumps(description, indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _files(self):
        """Returns the names of files that are not hidden."""
        return sorted(path.name for path in self.path.iterdir() if not path.name.startswith("."))

    def _refuse_foreign_files(self):
        if foreign := self._files():
            raise UserError(
                "`train_dir` must be empty, missing or hold a run of this program (nothing is "
                f"deleted). Received: train_dir={str(self.path)!r}, which holds {foreign[0]!r}"
            )

    def _never_saved(self):
        return all(
            any(fnmatch.fnmatchcase(name, known) for known in _BEFORE_CHECKPOINTS)
            for name in self._files()
        )

    def _refuse_other_run(self, differences):
        listed = "; ".join(differences[:_MAX_DIFFERENCES_SHOWN])
        more = len(differences) - _MAX_DIFFERENCES_SHOWN
        raise UserError(
            "`train_dir` must be a new folder or hold the same run (nothing is deleted). "
            f"Received: train_dir={str(self.path)!r}, which holds a run that differs in "
            f"{listed}{f'; and {more} more' if more > 0 else ''}"
        )

    def close(self) -> None:
        """Lets other processes claim the folder; the files stay."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

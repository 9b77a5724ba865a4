"""The folder of a run: who owns it, and which run it holds. Nothing in it is ever deleted here."""

import fcntl
import json
import os
import pathlib

from terngrad_tf.training.errors import UserError

RUN_FILE = "run.json"
_LOCK_FILE = ".lock"
_MAX_DIFFERENCES_TOLD = 6


def read(folder):
    """Description of the run that a folder holds.

    Args:
        folder: path.

    Returns:
        A dict with "identity", "max_steps" and "model", or None where the folder holds no run.

    Raises:
        UserError: run.json is unreadable.
    """
    path = pathlib.Path(folder) / RUN_FILE
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(description.get("identity"), dict):
            raise ValueError("no identity in it")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); name another train_dir") from error
    return description


def write_atomically(path, text):
    """Writes a text file so that readers see the old or the new text, never a part."""
    path = pathlib.Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


class RunFolder:
    """Claims a folder for a run, for as long as the process lives or until `close`.

    A new or empty folder takes the run; a folder that holds the same run resumes it; any other
    folder is refused.

    Args:
        path: the folder; made where it is missing.
        identity: flat dict of what defines the run; a folder holding a run with another
            identity is refused.
        **details: further JSON values to describe the run; the latest are kept.

    Raises:
        UserError: the folder is not writable, in use by another process, holds another run, or
            holds files of something else.

    Example:
        >>> import tempfile
        >>> folder = RunFolder(tempfile.mkdtemp() + "/run", {"net": "lenet"}, max_steps=10)
        >>> read(folder.path)["identity"]
        {'net': 'lenet'}
    """

    def __init__(self, path, identity, **details):
        self.path = pathlib.Path(path)
        self._lock = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / _LOCK_FILE, "a")  # noqa: SIM115 (held while it lives)
        except OSError as error:
            raise UserError(
                "`train_dir` must be a folder that can be written to. "
                f"Received: train_dir={str(path)!r} ({error.strerror})"
            ) from error
        try:
            self._claim(identity, details)
        except BaseException:
            self.close()
            raise

    def _claim(self, identity, details):
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                "`train_dir` must not be in use by another process. "
                f"Received: train_dir={str(self.path)!r}"
            ) from error
        except OSError:
            pass  # a file system without locks; the run goes on without that guard
        held = read(self.path)
        if held is None:
            self._refuse_foreign_files()
        else:
            self._refuse_other_run(held["identity"], identity)
        description = {"identity": identity, **details}
        if held != description:
            try:
                write_atomically(self.path / RUN_FILE, json.dumps(description, indent=2) + "\n")
            except OSError as error:
                raise UserError(
                    "`train_dir` must be a folder that can be written to. "
                    f"Received: train_dir={str(self.path)!r} ({error.strerror})"
                ) from error

    def _refuse_foreign_files(self):
        foreign = sorted(
            entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")
        )
        if foreign:
            raise UserError(
                "`train_dir` must be empty, missing or hold a run of this program (nothing is "
                f"deleted). Received: train_dir={str(self.path)!r}, which holds {foreign[0]!r}"
            )

    def _refuse_other_run(self, held, wanted):
        differences = [
            f"{key}: {held.get(key, 'nothing')!r} there, {wanted.get(key, 'nothing')!r} asked for"
            for key in sorted({*held, *wanted})
            if held.get(key) != wanted.get(key)
        ]
        if differences:
            told = "; ".join(differences[:_MAX_DIFFERENCES_TOLD])
            more = len(differences) - _MAX_DIFFERENCES_TOLD
            raise UserError(
                "`train_dir` must be a new folder or hold the same run (nothing is deleted). "
                f"Received: train_dir={str(self.path)!r}, which holds a run that differs in "
                f"{told}{f'; and {more} more' if more > 0 else ''}"
            )

    def close(self):
        """Lets other processes claim the folder; the files stay."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

"""Writes files and folders that appear at their place when complete."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator

from slim_data.common.errors import DataError
from slim_data.files import opening


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary name beside `path` to write to, which becomes `path` at the end.

    An exception removes the partial file; a crash leaves it, hidden, for the next run to overwrite.
    DataError if another process writes the file, or the temporary name is a link.
    """
    with opening.partial_file(path) as handle:
        partial = handle.name
        try:
            yield partial
            # The content must reach the disk before the rename.
            with open(partial, "rb") as written:
                os.fsync(written.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(partial)
            raise


def write_lines(path: str | os.PathLike, lines: Iterable[str]) -> None:
    """Writes lines, without their ends, to a file that appears when complete."""
    with atomic_write(path) as partial, open(partial, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


@contextlib.contextmanager
def atomic_directory(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary folder beside `path` to write to, which becomes `path` at the end.

    `path` must not exist. An exception removes the folder; a crash leaves it, hidden, for the next
    run to empty. DataError if another process writes the folder.
    """
    above, name = os.path.split(path)
    partial = os.path.join(above, f".{name}.partial")
    with contextlib.suppress(FileExistsError):
        os.makedirs(partial)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            opening.lock(descriptor)
            # Before, another process may have finished and renamed the folder.
            if not os.path.samestat(os.fstat(descriptor), os.lstat(partial)):
                raise FileNotFoundError
        except (BlockingIOError, FileNotFoundError):
            raise DataError(f"{path}: another process is writing this folder") from None
        try:
            _empty(partial)
            yield partial
            os.rename(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)


def _empty(folder):
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry)
        else:
            os.remove(entry)


def write_bytes(path: str | os.PathLike, data: bytes) -> None:
    """Writes bytes to a file, which an OSError names."""
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error

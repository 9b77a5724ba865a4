"""Files and folders that appear at their place when they are whole."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator

from slim_data.files import opening


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[str]:
    """Yields a name beside `path` to write to, and renames it to `path` at the end.

    After an exception the partial file is gone; after a crash it stays, hidden, until the next run
    writes it again. In neither case is there anything at `path` that was not there before.

    Raises:
        DataError: another process is writing the same file, or a link has that name.
    """
    with opening.partial_file(path) as handle:
        partial = handle.name
        try:
            yield partial
            # What the rename makes visible must have reached the disk before.
            with open(partial, "rb") as written:
                os.fsync(written.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(partial)
            raise


def write_lines(path: str | os.PathLike, lines: Iterable[str]) -> None:
    """Writes lines of text, without their ends, to a file that appears when it is whole."""
    with atomic_write(path) as partial, open(partial, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


@contextlib.contextmanager
def atomic_directory(path: str | os.PathLike) -> Iterator[str]:
    """Yields a hidden folder beside `path` to write to, and renames it to `path` at the end.

    After an exception it is gone; after a crash it stays until the next run, which starts it anew.

    Args:
        path: path of a folder that does not exist. Those above it are made if absent.
    """
    above, name = os.path.split(path)
    partial = os.path.join(above, f".{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    try:
        yield partial
        os.rename(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_bytes(path: str | os.PathLike, data: bytes) -> None:
    """Writes bytes to a file."""
    with open(path, "wb") as file:
        file.write(data)

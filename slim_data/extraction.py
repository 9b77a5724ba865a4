"""Folders that appear when they are whole."""

import contextlib
import os
import shutil


@contextlib.contextmanager
def new_folder(path):
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


def write(path, data):
    """Writes bytes to a file."""
    with open(path, "wb") as file:
        file.write(data)

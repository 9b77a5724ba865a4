"""A folder of images with a sub-folder per class: finds, checks and splits the images."""

import concurrent.futures
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

from slim_data.common import processes, progress
from slim_data.common.errors import DataError, errors_of, os_errors_of
from slim_data.datasets.sources import image_files, image_folders

# Files of file managers and archives.
_LEFT_BEHIND = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "__macosx"})


def class_folders(directory: str) -> list[str]:
    """Returns the names of the classes: the sub-folders of a folder, sorted."""
    return [name for name in image_folders.class_folders(directory) if not _is_left_behind(name)]


def find_images(directory: str, labels: Iterable[str]) -> list[str]:
    """Returns the files of each class at any depth, as `<label>/<path>`. Follows links."""
    above = (os.path.realpath(directory),)
    return [file for label in labels for file in _walk(directory, label, above)]


def find_bad(
    paths: Sequence[str], num_threads: int | None, bar: progress.Bar = progress.progress_bar
) -> dict[str, str]:
    """Returns {path: reason} of files that are damaged or not images.

    Args:
        num_threads: None: one per core.
    """
    bad = {}
    # The first check loads TensorFlow: keep it in this thread.
    first = [_fault(path) for path in paths[:1]]
    # Reading and decoding release the interpreter's lock.
    with (
        concurrent.futures.ThreadPoolExecutor(num_threads or processes.num_cores()) as pool,
        bar("Checking images", len(paths)) as advance,
    ):
        faults = itertools.chain(first, pool.map(_fault, paths[1:]))
        for done, (path, fault) in enumerate(zip(paths, faults, strict=True), 1):
            if fault is not None:
                bad[path] = fault
            advance(done)
    return bad


def order(files: Iterable[str], seed: int) -> list[str]:
    """Returns files in an order that depends only on their names and the seed.

    Added or removed files do not reorder the others.
    """
    return sorted(files, key=lambda file: _number(file, seed))


def split(files: Iterable[str], part: float, seed: int) -> dict[str, list[str]]:
    """Returns {"validation": files, "train": files} with a share of each class to validate.

    Args:
        part: share of validation images, at least 0 and less than 1. Unless it is 0, a class with
            two or more images has at least one in each split.
    """
    classes: dict[str, list[str]] = {}
    for file in order(files, seed):
        classes.setdefault(file.partition("/")[0], []).append(file)
    found = {"validation": [], "train": []}
    for own in classes.values():
        number = min(max(round(part * len(own)), 1), len(own) - 1) if part else 0
        found["validation"] += own[:number]
        found["train"] += own[number:]
    return {name: order(own, seed) for name, own in found.items()}


def _walk(directory: str, folder: str, above: tuple[str, ...]) -> Iterator[str]:
    place = os.path.join(directory, folder)
    real = os.path.realpath(place)
    if real in above:  # a link to a folder that holds the link
        return
    with os_errors_of(place):
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    for entry in entries:
        if _is_left_behind(entry.name):
            continue
        if entry.is_dir():
            yield from _walk(directory, f"{folder}/{entry.name}", (*above, real))
        else:
            yield f"{folder}/{entry.name}"


def _is_left_behind(name):
    return name.startswith(".") or name.lower() in _LEFT_BEHIND


def _fault(path):
    """Returns the reason why a file is unusable, or None."""
    try:
        data = image_files.read_image_file(path)
        with errors_of(path):
            image_files.as_jpeg(image_files.upright(data))
    except DataError as error:
        return str(error)
    return None


def _number(file, seed):
    return hashlib.sha256(f"{seed}\0{file}".encode(errors="surrogateescape")).digest()

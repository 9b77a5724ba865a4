"""labels.txt, which names the classes beside the records of a converted data set."""

import os
import re
from collections.abc import Sequence

from slim_data.common.errors import DataError
from slim_data.files.atomic import write_lines
from slim_data.files.text_files import read_lines
from slim_data.tfrecord import shards

NAME = "labels.txt"
MAX_CLASSES = 2**20
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def check_labels(labels: Sequence[str]) -> None:
    """Raises DataError where the names of classes cannot be lines of a file, or one comes twice."""
    for number, label in enumerate(labels, 1):
        if not label or not label.isprintable():
            raise DataError(
                f"the name of a class must be printable text. Received: {label!r} of class {number}"
            )
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise DataError(f"the name of a class must be one class's alone. Received twice: {twice!r}")


def write_labels(folder: str | os.PathLike, labels: Sequence[str], label_offset: int) -> None:
    """Writes labels.txt to a folder: a line `<number>:<name>` for each class."""
    numbered = enumerate(labels, label_offset)
    write_lines(os.path.join(folder, NAME), [f"{number}:{label}" for number, label in numbered])


def read_labels(name: str, data_dir: str | os.PathLike | None) -> tuple[tuple[str, ...], int]:
    """Returns (names of the classes, number of the first one) from a folder's labels.txt.

    Its lines are `<number>:<name>`, the numbers without a gap, or just `<name>`, numbered from 1 as
    by `build_image_data`.

    Args:
        name: name of the data set, for messages.
        data_dir: folder of a converted data set, or that of one worker's links to its files.

    Raises:
        DataError: there is no such file, or it does not name the classes.
    """
    if data_dir is None:
        raise DataError(f"`{name}` needs a folder, `data_dir`, whose {NAME} names the classes")
    path = os.path.join(data_dir, NAME)
    if shards.is_worker_folder(data_dir) and not os.path.exists(path):
        path = os.path.join(os.path.dirname(os.path.realpath(data_dir)), NAME)
    lines = [line.strip() for line in read_lines(path) if line.strip()]
    if not 0 < len(lines) <= MAX_CLASSES:
        raise DataError(f"{path} must name 1 to {MAX_CLASSES} classes. Received: {len(lines)}")
    numbered = [re.fullmatch(r"([0-9]{1,9}):(.+)", line) for line in lines]
    if not all(numbered):
        return tuple(lines), 1
    first = int(numbered[0][1])
    for number, line in enumerate(numbered, first):
        if int(line[1]) != number:
            raise DataError(f"{path} must number the classes without a gap. Received: {line[0]!r}")
    return tuple(line[2] for line in numbered), first

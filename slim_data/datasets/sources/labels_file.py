"""labels.txt, which names the classes of a converted data set, beside the records."""

import os
import re
from collections.abc import Sequence

from slim_data.common.errors import DataError
from slim_data.files.atomic import write_lines
from slim_data.files.text_files import read_lines
from slim_data.tfrecord import shards

NAME = "labels.txt"
MAX_CLASSES = 2**20
_LOOKS_NUMBERED = re.compile(r"[-+]?\d+\s*:")
_MOST_SHOWN = 60  # characters of a quoted line
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def check_labels(labels: Sequence[str]) -> None:
    """Raises DataError if a name cannot be a line of labels.txt, or is repeated."""
    for number, label in enumerate(labels, 1):
        if not label or not label.isprintable() or label != label.strip():
            raise DataError(
                "the name of a class must be printable text without spaces around it. "
                f"Received: {label!r} of class {number}"
            )
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise DataError(f"the names of classes must differ. Received twice: {twice!r}")


def write_labels(folder: str | os.PathLike, labels: Sequence[str], label_offset: int) -> None:
    """Writes labels.txt to a folder: a line `<number>:<name>` for each class."""
    numbered = enumerate(labels, label_offset)
    write_lines(os.path.join(folder, NAME), [f"{number}:{label}" for number, label in numbered])


def find_labels(data_dir: str | os.PathLike) -> str | None:
    """Returns the path of a folder's labels.txt, or None.

    Args:
        data_dir: folder of a data set, or a worker's folder of links to its files.
    """
    folders = [data_dir]
    if shards.is_worker_folder(data_dir):
        folders.append(os.path.dirname(os.path.realpath(data_dir)))
    paths = [os.path.join(folder, NAME) for folder in folders]
    return next((path for path in paths if os.path.lexists(path)), None)


def read_labels(name: str, data_dir: str | os.PathLike | None) -> tuple[tuple[str, ...], int]:
    """Returns (names of the classes, number of the first one) from a folder's labels.txt.

    Lines are `<number>:<name>`, numbered without gaps, or `<name>`, numbered from 1. Without
    numbers, only the last lines may be empty. `name` is the data set's, for messages.
    """
    if data_dir is None:
        raise DataError(f"`{name}` needs a folder, `data_dir`, whose {NAME} names the classes")
    path = find_labels(data_dir)
    if path is None:
        raise DataError(
            f"`data_dir` must hold {NAME}, which names the classes of {name}. "
            f"Received: data_dir={str(data_dir)!r}"
        )
    lines = [line.strip(" \t") for line in read_lines(path)]
    lines = {number: line for number, line in enumerate(lines, 1) if line}
    if not 0 < len(lines) <= MAX_CLASSES:
        raise DataError(f"{path} must name 1 to {MAX_CLASSES} classes. Received: {len(lines)}")
    # If one line has a number, all must have one.
    is_numbered = any(map(_LOOKS_NUMBERED.match, lines.values()))
    names, first = (_numbered if is_numbered else _numbered_by_line)(path, lines)
    _check_names(path, names)
    return tuple(names.values()), first


def _numbered_by_line(path, lines):
    """Returns ({line: name}, 1) of lines `<name>`."""
    for expected, number in enumerate(lines, 1):
        if number != expected:
            rule = "only the last lines may be empty, since lines number the classes"
            raise _error(path, expected, rule, "")
    return lines, 1


def _numbered(path, lines):
    """Returns ({line: name}, number of the first class) of lines `<number>:<name>`."""
    names, first = {}, 0
    for number, line in lines.items():
        match = re.fullmatch(r"([0-9]{1,9}):(.+)", line)
        if match is None:
            rule = "must be <number>:<name>, since other lines of this file have numbers"
            raise _error(path, number, rule, line)
        first = first if names else int(match[1])
        if int(match[1]) != first + len(names):
            rule = f"the classes must be numbered without gaps, here {first + len(names)}"
            raise _error(path, number, rule, line)
        names[number] = match[2]
    return names, first


def _check_names(path, names):
    places = {}
    for number, name in names.items():
        if not name.isprintable():
            raise _error(path, number, "the name of a class must be printable text", name)
        if name in places:
            rule = f"the names of classes must differ, not repeat that of line {places[name]}"
            raise _error(path, number, rule, name)
        places[name] = number


def _error(path, number, rule, received):
    return DataError(f"{path}, line {number}: {rule}. Received: {received[:_MOST_SHOWN]!r}")

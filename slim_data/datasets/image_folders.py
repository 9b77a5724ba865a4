"""Folders of images, one a class, in a shuffled but fixed order."""

import fnmatch
import functools
import hashlib
import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slim_data.common.errors import DataError, DataErrors, printable
from slim_data.datasets import image_files
from slim_data.datasets.labels_file import check_labels
from slim_data.files.text_files import read_lines
from slim_data.tfrecord import examples, write_splits

SEED = 12345

# Of the names of files it makes a function of a name and bytes, which returns an example.
Build = Callable[[Sequence[str]], Callable[[str, bytes], bytes]]


def read_labels(path: str) -> list[str]:
    """Returns the lines of a labels file: the first names class 1, as 0 is the background.

    Args:
        path: text file with the name of a class, which is a folder's name too, on each line.

    Raises:
        DataError: it cannot be read, is empty, names a class twice, or what is no folder's name.
    """
    labels = [line.strip() for line in read_lines(path, "labels_file") if line.strip()]
    if not labels:
        raise DataError(f"`labels_file` must name the classes. Received: {path} without any")
    known = set()
    for line, label in enumerate(labels, 1):
        # Of hidden folders `find_images` knows nothing.
        if label.startswith(".") or not {"/", "\0"}.isdisjoint(label) or label in known:
            raise DataError(
                f"`labels_file` must name folders, each once. Received: {path}, class {line}: "
                f"{label!r}"
            )
        known.add(label)
    return labels


def class_folders(directory: str) -> list[str]:
    """Returns the names of the folders in a folder, sorted; hidden ones do not count.

    Raises:
        DataError: it cannot be read.
    """
    try:
        found = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    except OSError as error:
        raise DataError(f"{directory}: {error.strerror}") from error
    return [name for name in found if not name.startswith(".")]


def find_images(directory: str, labels: Sequence[str], pattern: str = "*") -> list[str]:
    """Returns the images of a folder of folders as `<label>/<name>`, shuffled with a fixed seed.

    Args:
        directory: folder that holds one folder a label. Files beside these do not count.
        labels: names of the classes.
        pattern: shell pattern of the images' names. Hidden files do not count.

    Raises:
        DataError: the folders are not those of the labels, or hold no images.
    """
    folders = class_folders(directory)
    for name in sorted(set(folders) ^ set(labels)):
        state = "holds a folder that is not in" if name in folders else "lacks a folder of"
        raise DataError(f"{directory} {state} the labels file: {name}")
    files = []
    for label in labels:
        names = sorted(os.listdir(os.path.join(directory, label)))
        chosen = [name for name in fnmatch.filter(names, pattern) if not name.startswith(".")]
        files += [f"{label}/{name}" for name in chosen]
    if not files:
        raise DataError(f"{directory} holds no images <label>/{pattern}")
    # Only `random()` is promised to give the same numbers with every release of Python.
    place = random.Random(SEED)
    files.sort(key=lambda file: place.random())
    return files


def split_source(
    directory: str, files: Sequence[str], build: Build, options: Mapping[str, Any]
) -> write_splits.SplitSource:
    """Returns the `write_splits.SplitSource` of a split's images.

    Args:
        directory: folder that `files` lie in.
        files: what `find_images` returned.
        build: function of the names of some files, all at once, whose result is a function of
            (name, bytes) of one of them, which returns a serialized example. Picklable.
        options: dictionary of what else the examples depend on.
    """
    generate = functools.partial(_generate, directory, files, build)
    fingerprint = {**options, "images": _digest(directory, files), "seed": SEED}
    return write_splits.SplitSource(generate, len(files), fingerprint, may_change=("images",))


def example_builder(labels: Sequence[str], label_offset: int = 1) -> Build:
    """Returns the `build` that `split_source` takes for images of classes without more to them.

    Images that EXIF says to turn are turned.

    Args:
        labels: names of the classes.
        label_offset: number of the first.

    Raises:
        DataError: a name cannot be a line of labels.txt.
    """
    check_labels(labels)
    return functools.partial(_builder, {label: i for i, label in enumerate(labels, label_offset)})


def _builder(numbers, files):
    del files

    def build(file, data):
        label, _, name = file.partition("/")
        encoded, size = image_files.as_jpeg(image_files.upright(data))
        return examples.build_example(encoded, "JPEG", size, numbers[label], label, filename=name)

    return build


def _generate(directory, files, build, start, stop):
    """Yields examples up to the first that cannot be made; the others are looked at all the same.

    So that one run tells all images that cannot be used.
    """
    example = build(files[start:stop])
    faults = []
    for file in files[start:stop]:
        path = os.path.join(directory, file)
        try:
            record = example(file, image_files.read_image_file(path))
        except DataError as error:
            reason = str(error)
            faults.append(reason if reason.startswith(printable(path)) else f"{path}: {reason}")
        else:
            if not faults:
                yield record
    if faults:
        raise DataErrors(faults)


def _digest(directory, files):
    """Returns what changes when a file is added, renamed, removed or of another size."""
    digest = hashlib.sha256()
    for file in files:
        try:
            size = os.stat(os.path.join(directory, file)).st_size
        except OSError as error:
            raise DataError(f"{error.filename}: {error.strerror}") from error
        digest.update(f"{file}\0{size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()

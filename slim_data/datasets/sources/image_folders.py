"""Folders of images, one per class, in a shuffled but fixed order."""

import fnmatch
import functools
import hashlib
import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slim_data.common.errors import DataError, DataErrors, errors_of, os_errors_of
from slim_data.datasets.sources import image_files
from slim_data.datasets.sources.labels_file import check_labels
from slim_data.files.text_files import read_lines
from slim_data.tfrecord import examples, write_splits

SEED = 12345

# A function of files' names, called once for many files. Returns a function that makes the example
# of one of these files, given its name and bytes.
Build = Callable[[Sequence[str]], Callable[[str, bytes], bytes]]


def read_labels(path: str) -> list[str]:
    """Returns the lines of a labels file: the first names class 1, since 0 is the background.

    Args:
        path: text file with one class, the name of a folder, per line.
    """
    labels = [line.strip() for line in read_lines(path, "labels_file") if line.strip()]
    if not labels:
        raise DataError(f"`labels_file` must name the classes. Received: {path} without any")
    known = set()
    for line, label in enumerate(labels, 1):
        # `find_images` skips hidden folders.
        if label.startswith(".") or not {"/", "\0"}.isdisjoint(label) or label in known:
            raise DataError(
                f"`labels_file` must name folders, each once. Received: {path}, class {line}: "
                f"{label!r}"
            )
        known.add(label)
    return labels


def class_folders(directory: str) -> list[str]:
    """Returns the names of the folders in a folder, sorted, without hidden ones."""
    with os_errors_of(directory):
        found = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    return [name for name in found if not name.startswith(".")]


def find_images(
    directory: str, labels: Sequence[str], pattern: str = "*", *, is_train: bool
) -> list[str]:
    """Returns the images of a folder of folders as `<label>/<name>`, shuffled with a fixed seed.

    Args:
        pattern: shell pattern of the names. Hidden files are ignored.
        is_train: whether each class must have images.
    """
    folders = class_folders(directory)
    for name in sorted(set(folders) ^ set(labels)):
        state = "holds a folder that is not in" if name in folders else "lacks a folder of"
        raise DataError(f"{directory} {state} the labels file: {name}")
    files = []
    for label in labels:
        names = sorted(os.listdir(os.path.join(directory, label)))
        chosen = [name for name in fnmatch.filter(names, pattern) if not name.startswith(".")]
        if is_train and not chosen:
            raise DataError(f"{os.path.join(directory, label)} holds no images {pattern}")
        files += [f"{label}/{name}" for name in chosen]
    if not files:
        raise DataError(f"{directory} holds no images <label>/{pattern}")
    shuffle(files, random.Random(SEED))
    return files


def shuffle(items: list[str], generator: random.Random) -> None:
    """Shuffles a list, equally with every release of Python."""
    # Of the generator's methods, only `random` promises this.
    items.sort(key=lambda item: generator.random())


def split_source(
    directory: str, files: Sequence[str], build: Build, options: Mapping[str, Any]
) -> write_splits.SplitSource:
    """Returns the `write_splits.SplitSource` of a split's images.

    Args:
        files: result of `find_images`.
        build: picklable; see `Build`.
        options: everything else that the examples depend on.
    """
    generate = functools.partial(_generate, directory, files, build)
    fingerprint = {**options, "images": _digest(directory, files), "seed": SEED}
    return write_splits.SplitSource(generate, len(files), fingerprint, may_change=("images",))


def example_builder(labels: Sequence[str], label_offset: int = 1) -> Build:
    """Returns the `build` of `split_source` for images with a class only, upright by EXIF.

    Args:
        label_offset: number of the first class.
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
    """Yields examples up to the first faulty image, then checks the rest to report all faults."""
    example = build(files[start:stop])
    faults = []
    for file in files[start:stop]:
        path = os.path.join(directory, file)
        try:
            data = image_files.read_image_file(path)
            with errors_of(path):
                record = example(file, data)
        except DataError as error:
            faults.append(str(error))
        else:
            if not faults:
                yield record
    if faults:
        raise DataErrors(faults)


def _digest(directory, files):
    """Returns a digest that changes if a file is added, renamed, removed or resized."""
    digest = hashlib.sha256()
    for file in files:
        path = os.path.join(directory, file)
        with os_errors_of(path):
            size = os.stat(path).st_size
        digest.update(f"{file}\0{size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()

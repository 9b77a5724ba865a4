"""Converts a folder of images with a sub-folder per class to the data set `folder`."""

import os
from collections.abc import Callable

from slim_data.common import progress
from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError, DataErrors
from slim_data.common.extras import check_installed
from slim_data.datasets.sources import image_folders, image_tree, labels_file
from slim_data.tfrecord import shards, write_splits

_TRAIN = ("train", "training")
_SPLITS = frozenset({*_TRAIN, "val", "valid", "validation", "test"})


def convert_folder(
    directory: str | os.PathLike[str],
    dataset_dir: str | os.PathLike[str],
    *,
    validation: float | str | os.PathLike[str] = 0.1,
    seed: int = 0,
    skip_bad: bool = False,
    train_shards: int = 8,
    validation_shards: int = 2,
    num_processes: int | None = 1,
    report: Callable[[str], object] | None = None,
) -> dict[str, list[str]]:
    """Writes a folder of images as TFRecords, and the names of its sub-folders to `labels.txt`.

    Sub-folders are the classes, numbered from 0 by name; images may lie at any depth; links are
    followed. JPEG, PNG, GIF, WebP and BMP are recognized by content; the first picture of an
    animation counts. JPEG files are kept byte for byte, unless CMYK or turned by EXIF; all others
    become RGB JPEG of quality 100, without transparency.

    All images are checked first. Repeat the call to resume an interrupted conversion.

    Args:
        directory: folder with one folder of images per class.
        dataset_dir: folder to write to; created if absent.
        validation: share of each class's images for validation, at least 0 and less than 1; or a
            folder like `directory`. Unless the share is 0, a class with two or more images has at
            least one in each split.
        seed: chooses the validation images and the order of all images, by file names only.
        skip_bad: whether to skip files that are damaged or not images, instead of an error that
            lists them.
        train_shards, validation_shards: number of files; a split with fewer images has one file per
            image.
        num_processes: maximum number of processes; None: one per core. More than one need
            a main part guarded by `if __name__ == "__main__":`.
        report: function of a line of text, called after each step. If given, a terminal
            also shows progress bars.

    Returns:
        {split: list of paths}.

    Raises:
        DataError: an argument is wrong, there are fewer than two classes, a class has no images,
            files are unusable without `skip_bad`, or `dataset_dir` holds another conversion or is
            not writable.

    Example:
        >>> convert_folder("photos", "records", validation=0.2)["validation"]
        ['records/validation-00000-of-00002', 'records/validation-00001-of-00002']
    """
    bar = progress.no_bar if report is None else progress.progress_bar
    report = report or progress.ignore
    directory, dataset_dir = os.fspath(directory), os.fspath(dataset_dir)
    check_at_least(-(2**63), seed=seed)
    check_at_least(1, train_shards=train_shards, validation_shards=validation_shards)
    if num_processes is not None:
        check_at_least(1, num_processes=num_processes)
    part, other = _part_or_folder(validation)
    _check_readable("directory", directory)
    if other:
        _check_readable("validation", other)
    labels = _find_labels(directory)
    check_installed("PIL")
    found = {directory: image_tree.find_images(directory, labels)}
    if other:
        known = _find_known_labels(other, directory, labels)
        found[other] = image_tree.find_images(other, known)
    for folder in found:
        _check_apart(folder, dataset_dir)

    paths = [os.path.join(folder, file) for folder, files in found.items() for file in files]
    bad = image_tree.find_bad(paths, num_processes, bar)
    _report_bad(bad, len(paths), skip_bad, report)
    for folder, files in found.items():
        found[folder] = [file for file in files if os.path.join(folder, file) not in bad]
        _check_classes(folder, found[folder], labels if folder == directory else ())

    if other:
        splits = {"validation": (other, found[other]), "train": (directory, found[directory])}
    else:
        parts = image_tree.split(found[directory], part, seed)
        splits = {name: (directory, files) for name, files in parts.items() if files}
    build = image_folders.example_builder(labels, label_offset=0)
    sources = {
        name: image_folders.split_source(
            folder, image_tree.order(files, seed), build, {"classes": labels}
        )
        for name, (folder, files) in splits.items()
    }
    num_shards = {"train": train_shards, "validation": validation_shards}
    write_splits.write_splits(
        sources, num_shards, dataset_dir, num_processes=num_processes, report=report
    )
    labels_file.write_labels(dataset_dir, labels, label_offset=0)
    return {name: shards.find_shards(dataset_dir, name) for name in sources}


def _part_or_folder(validation):
    """Returns (share of the images, None), or (0, folder)."""
    if not isinstance(validation, (int, float)):
        return 0, os.fspath(validation)
    if not 0 <= validation < 1:
        raise DataError(
            "`validation` must be at least 0 and less than 1, or a folder. "
            f"Received: validation={validation!r}"
        )
    return validation, None


def _check_readable(name, folder):
    try:
        os.listdir(folder)
    except OSError as error:
        raise DataError(
            f"`{name}` must be a folder that can be read. "
            f"Received: {name}={folder!r} ({error.strerror})"
        ) from error


def _find_labels(directory):
    labels = image_tree.class_folders(directory)
    if labels and _SPLITS.issuperset(map(str.lower, labels)):
        train = next((name for name in labels if name.lower() in _TRAIN), labels[0])
        other = next((name for name in labels if name != train), "validation")
        raise DataError(
            f"{directory} holds {', '.join(labels)}, which are no classes: convert the folder "
            f"{os.path.join(directory, train)} with --validation {os.path.join(directory, other)}"
        )
    if len(labels) < 2:
        raise DataError(
            f"{directory} must hold two folders or more, one for each class. "
            f"Received: {', '.join(map(repr, labels)) or 'none'}"
        )
    labels_file.check_labels(labels)
    return labels


def _find_known_labels(folder, directory, known):
    if os.path.realpath(folder) == os.path.realpath(directory):
        raise DataError(f"`validation` must be another folder than the one to train with, {folder}")
    labels = image_tree.class_folders(folder)
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise DataError(f"{folder} holds a folder that {directory} does not: {unknown[0]!r}")
    return labels


def _check_apart(folder, dataset_dir):
    above, below = os.path.realpath(folder), os.path.realpath(dataset_dir)
    if os.path.commonpath([above, below]) == above:
        raise DataError(
            f"`dataset_dir` must not lie in the folder of images, {folder}. "
            f"Received: dataset_dir={dataset_dir!r}"
        )


def _report_bad(bad, num_files, skip_bad, report):
    """Reports unusable files, {path: fault}; raises DataErrors unless they are skipped."""
    if not bad:
        return
    if skip_bad or len(bad) > 1:
        for fault in bad.values():
            report(fault)
    if not skip_bad:
        raise DataErrors(bad.values(), "remove or replace the files, or give --skip_bad")
    report(f"left out {len(bad)} of {num_files} files")


def _check_classes(folder, files, labels):
    empty = set(labels) - {file.partition("/")[0] for file in files}
    for label in sorted(empty):
        path = os.path.join(folder, label)
        raise DataError(f"{path} holds no image that can be used: add some, or remove the folder")
    if not files:
        raise DataError(f"{folder} holds no image that can be used")

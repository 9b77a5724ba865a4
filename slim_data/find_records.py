r"""Finds the TFRecords of a folder of photos, or writes them on first use.

    python -m slim_data.find_records ./imagenet

prints ./imagenet if this folder holds train-* files. If it holds images instead,

    imagenet/train/<class>/*.JPEG
    imagenet/val/<class>/*.JPEG          (or validation, or validation_preprocess)

it writes them to ./imagenet/tfrecords, which takes the same space again, and prints this path.
Classes are numbered from 1 in the order of their names. Files are recognized by content; an error
names a damaged image. Repeat the command to resume. Complete records are not compared with the
images: remove the folder tfrecords after a change. scripts/run_stage_1.sh and run_stage_2.sh call
this program.
"""

import contextlib
import os
import sys
from collections.abc import Callable

from slim_data.cli import program
from slim_data.common.errors import DataError
from slim_data.common.progress import ignore
from slim_data.datasets import registry
from slim_data.datasets.sources import image_folders, labels_file
from slim_data.tfrecord import shards, write_splits

RECORDS = "tfrecords"
VALIDATION_FOLDERS = ("val", "validation", "validation_preprocess")
_IMAGES_A_FILE = 1000
_FEWEST_FILES = 16  # so that several processes can share even a small set
_MOST_FILES = {"train": 1024, "validation": 128}


def find_records(
    data_dir: str | os.PathLike,
    output_directory: str | os.PathLike | None = None,
    *,
    num_processes: int | None = None,
    report: Callable[[str], object] = ignore,
) -> str | os.PathLike:
    """Returns the folder with the TFRecords of a folder of photos, after writing missing ones.

    Args:
        data_dir: folder with TFRecords, or with one folder of images per class.
        output_directory: default: "tfrecords" in data_dir.
    """
    train = os.path.join(data_dir, "train")
    if shards.find_shards(data_dir, "train"):
        return data_dir
    if not os.path.isdir(train):
        raise DataError(
            f"`data_dir` must hold train-* files, or a folder train with one folder per class. "
            f"Received: data_dir={str(data_dir)!r}"
        )
    output_directory = output_directory or os.path.join(data_dir, RECORDS)
    is_whole = all(_is_whole(output_directory, split) for split in _MOST_FILES)
    if is_whole and labels_file.find_labels(output_directory):  # written last
        return output_directory
    validation = _validation_folder(data_dir)
    labels = _labels(train, validation)
    build = image_folders.example_builder(labels)
    sources = {}
    for split, folder in (("validation", validation), ("train", train)):
        classes = image_folders.class_folders(folder)
        files = image_folders.find_images(folder, classes, is_train=split == "train")
        sources[split] = image_folders.split_source(folder, files, build, {"classes": labels})
    write_splits.write_splits(
        sources,
        {split: _num_files(split, source.num_examples) for split, source in sources.items()},
        output_directory,
        num_processes=num_processes,
        report=report,
    )
    labels_file.write_labels(output_directory, labels, label_offset=1)
    return output_directory


def _validation_folder(data_dir):
    folders = [os.path.join(data_dir, name) for name in VALIDATION_FOLDERS]
    found = next(filter(os.path.isdir, folders), None)
    if found is None:
        raise DataError(
            f"{data_dir} must hold a folder {' or '.join(VALIDATION_FOLDERS)} with one folder per "
            "class, beside train"
        )
    return found


def _labels(train, validation):
    """Returns the names of the classes, which are those of the training folders."""
    labels = image_folders.class_folders(train)
    most = len(registry.info("imagenet").labels)
    if len(labels) > most:
        raise DataError(f"{train} must hold at most {most} classes. Received: {len(labels)}")
    unknown = sorted(set(image_folders.class_folders(validation)) - set(labels))
    if unknown:
        raise DataError(f"{validation} holds a class that {train} does not: {unknown[0]!r}")
    return labels


def _is_whole(folder, split):
    """Returns True if a folder holds all files of a split."""
    with contextlib.suppress(DataError):
        return bool(shards.find_shards(folder, split))
    return False


def _num_files(split, num_examples):
    wanted = max(_FEWEST_FILES, -(-num_examples // _IMAGES_A_FILE))
    return min(wanted, _MOST_FILES[split], num_examples)


def _add_arguments(parser):
    parser.add_argument(
        "data_dir", metavar="DATA_DIR", type="path", help="folder with TFRecords or images"
    )
    parser.add_argument(
        "--output_directory",
        type="path",
        help="folder to write to (default: tfrecords in DATA_DIR)",
    )


def _main(values):
    found = find_records(
        values.data_dir,
        values.output_directory,
        report=lambda line: program.report(line, sys.stderr),
    )
    print(found, flush=True)


run = program.console_command("find_records", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

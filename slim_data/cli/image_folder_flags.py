"""Arguments that the programs for folders of images share."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from slim_data.cli import program
from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError
from slim_data.datasets.sources import image_folders
from slim_data.tfrecord import write_splits

SPLITS = ("validation", "train")


def add_arguments(
    parser: argparse.ArgumentParser, *, train_shards: int, validation_shards: int, num_threads: int
) -> None:
    """Adds the common arguments to a parser, with the given defaults."""
    for split in ("train", "validation"):
        parser.add_argument(
            f"--{split}_directory", type="path", help=f"folder with {split} images, <label>/*"
        )
    parser.add_argument(
        "--output_directory",
        required=True,
        type="path",
        help="folder to write to; created if absent",
    )
    for flag, default, text in (
        ("train_shards", train_shards, "number of files with training images"),
        ("validation_shards", validation_shards, "number of files with validation images"),
        (
            "num_threads",
            num_threads,
            "maximum number of processes (threads would wait for one another); a few images "
            "take fewer. Need not divide the number of files",
        ),
    ):
        parser.add_argument(
            f"--{flag}", type=int, default=default, help=f"{text} (default: %(default)s)"
        )


def find_sources(
    values: argparse.Namespace,
    labels: Sequence[str],
    pattern: str,
    build: image_folders.Build,
    options: Mapping[str, Any],
) -> dict[str, write_splits.SplitSource]:
    """Returns {split: `write_splits.SplitSource`} for the image folders named by the arguments."""
    found = {}
    for split in SPLITS:
        folder = getattr(values, f"{split}_directory")
        if not folder:
            raise DataError(
                f"`{split}_directory` must name a folder. Give it with --{split}_directory"
            )
        files = image_folders.find_images(folder, labels, pattern, is_train=split == "train")
        found[split] = image_folders.split_source(folder, files, build, options)
    return found


def write_sources(
    values: argparse.Namespace, found: Mapping[str, write_splits.SplitSource]
) -> None:
    """Writes {split: `write_splits.SplitSource`} as the arguments say."""
    check_at_least(1, num_threads=values.num_threads)
    write_splits.write_splits(
        found,
        {split: getattr(values, f"{split}_shards") for split in found},
        values.output_directory,
        num_processes=values.num_threads,
        report=program.report,
    )

"""What the programs that convert folders of images have in common."""

import os

from slim_data import image_folders, program
from slim_data.arguments import check_at_least


def add(parser, *, train_shards, validation_shards, num_threads):
    """Adds the common arguments to an `argparse` parser, with these defaults for the numbers."""
    for split in ("train", "validation"):
        parser.add_argument(
            f"--{split}_directory", required=True, help=f"folder with {split} images, <label>/*"
        )
    parser.add_argument(
        "--output_directory", required=True, help="folder to write to; made if absent"
    )
    for flag, default, text in (
        ("train_shards", train_shards, "number of files with training images"),
        ("validation_shards", validation_shards, "number of files with validation images"),
        (
            "num_threads",
            num_threads,
            "number of processes at most, as threads would wait for one another; a few images "
            "take fewer. Need not divide the numbers of files",
        ),
    ):
        parser.add_argument(
            f"--{flag}", type=int, default=default, help=f"{text} (default: %(default)s)"
        )


def convert(values, labels, pattern, build, options):
    """Converts the validation images and then the training images as the arguments say.

    Args:
        values: `argparse.Namespace` of the arguments that `add` added.
        labels, pattern: as for `image_folders.find`.
        build, options: as for `image_folders.convert`.
    """
    check_at_least(1, num_threads=values.num_threads)
    folders = {
        split: os.path.expanduser(getattr(values, f"{split}_directory"))
        for split in ("validation", "train")
    }
    # Both first: nobody wants to wait for one to hear that the other one is wrong.
    files = {
        split: image_folders.find(folder, labels, pattern) for split, folder in folders.items()
    }
    for split, found in files.items():
        image_folders.check_num_shards(split, getattr(values, f"{split}_shards"), found)
    for split, folder in folders.items():
        image_folders.convert(
            split,
            folder,
            files[split],
            os.path.expanduser(values.output_directory),
            getattr(values, f"{split}_shards"),
            build,
            options,
            num_processes=values.num_threads,
            report=program.report,
        )

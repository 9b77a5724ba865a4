r"""Writes a folder of images, a sub-folder for each class, as TFRecords.

    terngrad convert folder photos records --validation 0.2

reads photos/<class>/*, and folders within, and writes records/train-00000-of-00008 and so on,
records/validation-00000-of-00002 and so on, and records/labels.txt, which names the classes. JPEG,
PNG, GIF, WebP and BMP are told by content. JPEG files are kept byte for byte unless they are CMYK
or EXIF says to turn them; all others become RGB JPEG of quality 100.

All images are looked at first: files that cannot be used are all told in one run, which writes
nothing, or are left out with --skip_bad. Hidden files, Thumbs.db and desktop.ini do not count. The
same command again goes on where it was interrupted. Training takes the result with --dataset_name
folder.
"""

import os

from slim_data.cli import program
from slim_data.datasets import folder_conversion


def _validation(text):
    try:
        return float(text)
    except ValueError:
        return os.path.expanduser(text)


def _add_arguments(parser):
    parser.add_argument("directory", metavar="DIR", help="folder with a folder for each class")
    parser.add_argument("output", metavar="OUT", help="folder to write to; made if absent")
    parser.add_argument(
        "--validation",
        type=_validation,
        default=0.1,
        help="part of each class's images to validate with, or a folder with images for that "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="chooses these images (default: %(default)s)"
    )
    program.add_boolean(
        parser, "skip_bad", "leave out files that are no images, or damaged, and tell them"
    )
    for split, number in (("train", 8), ("validation", 2)):
        parser.add_argument(
            f"--{split}_shards",
            type=int,
            default=number,
            help=f"number of files of the {split} images (default: %(default)s)",
        )
    parser.add_argument(
        "--num_processes",
        type=int,
        help="how many processes may work at once (default: one a core)",
    )


def _main(values):
    folder_conversion.convert_folder(
        os.path.expanduser(values.directory),
        os.path.expanduser(values.output),
        validation=values.validation,
        seed=values.seed,
        skip_bad=values.skip_bad,
        train_shards=values.train_shards,
        validation_shards=values.validation_shards,
        num_processes=values.num_processes,
        report=program.report,
    )


run = program.console_command("convert_folder", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

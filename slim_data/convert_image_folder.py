r"""Writes a folder of images with a sub-folder per class as TFRecords.

    terngrad convert folder photos records --validation 0.2

reads photos/<class>/*, and folders within, and writes records/train-00000-of-00008 and so on,
records/validation-00000-of-00002 and so on, and records/labels.txt, which names the classes. JPEG,
PNG, GIF, WebP and BMP are recognized by content. JPEG files are kept byte for byte, unless they are
CMYK or turned by EXIF; all others become RGB JPEG of quality 100.

The program checks all images first. If files are unusable, it reports all of them and writes
nothing, or skips them with --skip_bad. Hidden files, Thumbs.db and desktop.ini do not count. Repeat
the command to resume an interrupted conversion. Train with --dataset_name folder.
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
    parser.add_argument(
        "directory", metavar="DIR", type="path", help="folder with one folder per class"
    )
    parser.add_argument(
        "output", metavar="OUT", type="path", help="folder to write to; created if absent"
    )
    parser.add_argument(
        "--validation",
        type=_validation,
        default=0.1,
        help="share of each class's images for validation, or a folder of validation images "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="selects these images (default: %(default)s)"
    )
    program.add_boolean(
        parser, "skip_bad", "skip files that are damaged or not images, and report them"
    )
    for split, number in (("train", 8), ("validation", 2)):
        parser.add_argument(
            f"--{split}_shards",
            type=int,
            default=number,
            help=f"number of files of the {split} images (default: %(default)s)",
        )
    program.add_num_processes(parser)


def _main(values):
    folder_conversion.convert_folder(
        values.directory,
        values.output,
        validation=values.validation,
        seed=values.seed,
        skip_bad=values.skip_bad,
        train_shards=values.train_shards,
        validation_shards=values.validation_shards,
        num_processes=values.num_processes,
        report=program.report,
    )


run = program.console_command("convert_image_folder", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

"""Extracts the input of build_image_data from the archive of the flower photos.

    python -m slim_data.prepare_flowers DATA_DIR

downloads flower_photos.tgz to DATA_DIR if missing, and writes 500 photos for validation, 3,170 for
training and the names of the classes to DATA_DIR/raw-data.
"""

from slim_data.cli import program
from slim_data.datasets import flowers_preparation


def _add_arguments(parser):
    parser.add_argument(
        "data_dir", metavar="DATA_DIR", type="path", help="folder to work in; created if absent"
    )


def _main(values):
    flowers_preparation.prepare(values.data_dir, program.report)


run = program.console_command("prepare_flowers", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

"""Creates the folder of links to one worker's part of the training files.

    python -m slim_data.split ~/dataset/imagenet-data 16 1

creates ~/dataset/imagenet-data/worker_1_of_16 with links to the second sixteenth of its
train-?????-of-????? files. An existing folder is kept. Instead of a number, `all` creates the
folders of all workers:

    python -m slim_data.split ~/dataset/cifar10-shard-data 2 all --link_as ~/dataset/cifar10-part

also creates ~/dataset/cifar10-part-0-499 and ~/dataset/cifar10-part-500-999, links to the two
folders.
"""

import argparse

from slim_data.cli import program
from slim_data.common.errors import DataError
from slim_data.tfrecord import splitting

ALL = "all"


def _add_arguments(parser):
    parser.add_argument(
        "data_dir", metavar="DATA_DIR", type="path", help="folder with all training files"
    )
    parser.add_argument("num_workers", metavar="WORKER_NUM", type=int, help="number of workers")
    parser.add_argument(
        "worker_id",
        metavar="WORKER_ID",
        type=_worker_id,
        help="number of the worker, from 0; or all",
    )
    parser.add_argument(
        "--link_as",
        metavar="PATH",
        type="path",
        help="with all: create links to the folders, PATH-<first file>-<last file>",
    )


def _worker_id(text):
    if text != ALL and not text.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number or {ALL}. Received: {text!r}")
    return text if text == ALL else int(text)


def _main(values):
    if values.link_as is not None and (values.worker_id != ALL or not values.link_as):
        raise DataError(
            f"`link_as` must be a path, given with WORKER_ID {ALL}. "
            f"Received: link_as={values.link_as!r}"
        )
    common = values.data_dir, values.num_workers
    if values.worker_id == ALL:
        splitting.split_for_all(*common, values.link_as, program.report)
    else:
        splitting.split_dataset(*common, values.worker_id, program.report)


run = program.console_command("split_dataset", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

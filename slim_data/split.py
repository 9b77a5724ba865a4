"""Makes the folder of links to one worker's part of the training files.

    python -m slim_data.split ~/dataset/imagenet-data 16 1

makes ~/dataset/imagenet-data/worker_1_of_16 with links to the second sixteenth of its
train-?????-of-????? files. A folder that is there already is kept.
"""

import os
import sys

from slim_data import program, splitting


def _add_arguments(parser):
    parser.add_argument("data_dir", metavar="DATA_DIR", help="folder with all training files")
    parser.add_argument("num_workers", metavar="WORKER_NUM", type=int, help="number of workers")
    parser.add_argument(
        "worker_id", metavar="WORKER_ID", type=int, help="number of the worker, from 0"
    )


def _main(values):
    splitting.split_dataset(
        os.path.expanduser(values.data_dir), values.num_workers, values.worker_id, program.report
    )


def run():
    """Entry point of the console command."""
    sys.exit(program.run("split_dataset", __doc__, _add_arguments, _main))


if __name__ == "__main__":
    run()

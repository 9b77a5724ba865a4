r"""Checks a converted data set, record by record, and counts records by file and class.

    python -m slim_data.validate --dataset_name mnist --dataset_dir ~/dataset/mnist-data

Compares every checksum, key, label and image with the data set's description, and the number of
records with those that were written to each file or, if that is not known, published. The last line
is a summary. Damaged records are listed below their file's row, and checking continues; the last
line then names the first damaged record, and the exit status is 2.
"""

from slim_data.cli import program
from slim_data.datasets import registry
from slim_data.input import validation


def _add_arguments(parser):
    names = ", ".join(registry.DATASETS)
    parser.add_argument("--dataset_name", required=True, help=f"data set to expect: {names}")
    parser.add_argument(
        "--dataset_dir", required=True, type="path", help="folder of the converted data set"
    )
    program.add_boolean(
        parser, "allow_other_counts", "accept another number of records than published"
    )


def _main(values):
    validation.validate(
        values.dataset_name,
        values.dataset_dir,
        program.report,
        allow_other_counts=values.allow_other_counts,
    )


run = program.console_command("validate_dataset", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

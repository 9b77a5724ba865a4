r"""Writes a data set as TFRecords.

    python -m slim_data.download_and_convert_data \
        --dataset_name mnist --raw_dir ~/Downloads --dataset_dir ~/dataset/mnist-data

writes `train-mnist.tfrecord`, `test-mnist.tfrecord` and `labels.txt`; with `--shard True` the
examples are spread evenly over `train-00000-of-01000` and so on, and `test-00000-of-00001`. If all
files are there already, nothing is written.

Data sets: `digits` (inside scikit-learn), `mnist` (from its four official .gz files) and `cifar10`
(from its official cifar-10-binary.tar.gz).
"""

import os
import sys

from absl import app, flags

from slim_data import conversion, datasets, legacy_flags
from slim_data.errors import DataError

FLAGS = flags.FLAGS

flags.DEFINE_string("dataset_name", None, f"Data set to convert: {', '.join(datasets.DATASETS)}.")
flags.DEFINE_string("dataset_dir", None, "Folder to write to; made if absent.")
flags.DEFINE_boolean("shard", False, "Spread the training examples over several files.")
flags.DEFINE_integer(
    "train_shards",
    None,
    f"Number of files with --shard (default: {conversion.DEFAULT_TRAIN_SHARDS}).",
)
flags.DEFINE_string(
    "raw_dir", None, "Folder that holds the official files (default: --dataset_dir)."
)


def main(argv):
    """Converts as the flags say; returns the exit status."""
    try:
        if argv[1:]:
            raise DataError(f"Flags start with --. Received: {argv[1]!r}")
        if not FLAGS.dataset_dir:
            raise DataError("`dataset_dir` must name a folder. Give it with --dataset_dir")
        conversion.convert(
            FLAGS.dataset_name,
            os.path.expanduser(FLAGS.dataset_dir),
            shard=FLAGS.shard,
            train_shards=FLAGS.train_shards,
            raw_dir=FLAGS.raw_dir and os.path.expanduser(FLAGS.raw_dir),
            report=lambda line: print(line, flush=True),
        )
    except DataError as error:
        print(f"{os.path.basename(argv[0])}: error: {error}", file=sys.stderr)
        return 2
    return 0


def run():
    """Entry point of the console command."""
    # TensorFlow's notes on start-up would hide the lines that matter.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    app.run(main, flags_parser=_parse)


def _parse(argv):
    return app.parse_flags_with_usage(legacy_flags.rewrite(argv, FLAGS))


if __name__ == "__main__":
    run()

r"""Writes a data set as TFRecords.

    python -m slim_data.download_and_convert_data \
        --dataset_name mnist --dataset_dir ~/dataset/mnist-data

downloads what is needed and writes `train-mnist.tfrecord`, `test-mnist.tfrecord` and `labels.txt`;
with `--shard True` the examples are spread evenly over `train-00000-of-01000` and so on, and
`test-00000-of-00001`. If all files are there already, nothing is written; a run that was
interrupted goes on where it was when the same command is given again.

Data sets, and the official files that `--raw_dir` may hold already:
`digits`: none, they are inside scikit-learn;
`mnist`: train-images-idx3-ubyte.gz and its three companions;
`cifar10`: cifar-10-python.tar.gz or cifar-10-binary.tar.gz;
`flowers`: flower_photos.tgz, written as `train-00000-of-00005` and so on, labels from 1.

ImageNet has a program of its own, build_imagenet_data.
"""

import os
import sys

from absl import app, flags

from slim_data import conversion, datasets, legacy_flags
from slim_data.errors import DataError

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "dataset_name",
    None,
    f"Data set to convert: {', '.join(n for n, d in datasets.DATASETS.items() if d.source)}.",
)
flags.DEFINE_string("dataset_dir", None, "Folder to write to; made if absent.")
flags.DEFINE_boolean(
    "shard",
    None,
    "Spread each split over several files, one for testing (default: only for flowers).",
)
flags.DEFINE_integer(
    "train_shards", None, "Number of files for training with --shard (default: 1000; flowers: 5)."
)
flags.DEFINE_string(
    "source",
    None,
    "download (default): official files in --raw_dir, and what it lacks is downloaded to it. "
    "files: official files in --raw_dir only. tfds: tensorflow-datasets downloads and prepares.",
)
flags.DEFINE_string("raw_dir", None, "Folder of the official files (default: --dataset_dir).")
flags.DEFINE_string(
    "tfds_dir",
    None,
    "Folder of tensorflow-datasets with --source tfds (default: ~/tensorflow_datasets).",
)
flags.DEFINE_integer(
    "num_processes", None, "How many processes may work at once (default: one a core)."
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
            source=FLAGS.source,
            raw_dir=FLAGS.raw_dir and os.path.expanduser(FLAGS.raw_dir),
            tfds_dir=FLAGS.tfds_dir and os.path.expanduser(FLAGS.tfds_dir),
            num_processes=FLAGS.num_processes,
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

r"""Writes a data set as TFRecords.

    python -m slim_data.download_and_convert_data \
        --dataset_name mnist --dataset_dir ~/dataset/mnist-data

downloads the official files and writes `train-mnist.tfrecord`, `test-mnist.tfrecord` and
`labels.txt`; with `--shard True`, examples are spread evenly over `train-00000-of-01000` and so on,
and `test-00000-of-00001`. If all files exist, nothing is written; repeat the command to resume an
interrupted conversion.

Data sets, and the official files that `--raw_dir` may already hold:
`digits`: none, they are inside scikit-learn;
`mnist`, `fashion_mnist`: train-images-idx3-ubyte.gz and its three companions;
`idx`: your own files in this format, with classes named by --labels;
`cifar10`: cifar-10-python.tar.gz or cifar-10-binary.tar.gz;
`flowers`: flower_photos.tgz, written as `train-00000-of-00005` and so on, labels from 1.

Archives that are not the official ones, by their checksums, are refused unless
--allow_other_archives is given. Use convert_image_folder for folders of images, and
build_imagenet_data for ImageNet.
"""

import os

from slim_data.cli import program
from slim_data.datasets import conversion, registry
from slim_data.files.text_files import read_lines


def _add_arguments(parser):
    names = ", ".join(name for name, builder in registry.DATASETS.items() if not builder.program)
    parser.add_argument("--dataset_name", required=True, help=f"data set to convert: {names}")
    parser.add_argument(
        "--dataset_dir", required=True, type="path", help="folder to write to; created if absent"
    )
    program.add_boolean(
        parser,
        "shard",
        "spread each split over several files, test over one (default: only for flowers)",
        default=None,
    )
    parser.add_argument(
        "--train_shards",
        type=int,
        help="number of files for training with --shard (default: 1000; flowers: 5)",
    )
    parser.add_argument(
        "--source",
        help="download (default): official files in --raw_dir, downloading missing ones to it; "
        "files: official files in --raw_dir only; tfds: tensorflow-datasets downloads and prepares",
    )
    parser.add_argument(
        "--raw_dir", type="path", help="folder of the official files (default: --dataset_dir)"
    )
    parser.add_argument(
        "--tfds_dir",
        type="path",
        help="folder of tensorflow-datasets with --source tfds (default: ~/tensorflow_datasets)",
    )
    parser.add_argument(
        "--labels",
        type="path",
        help="names of the classes of idx in the order of their numbers from 0: separated by "
        "commas, or a text file with one per line",
    )
    program.add_boolean(
        parser,
        "allow_other_archives",
        "accept files in --raw_dir whose checksums are not official",
    )
    program.add_num_processes(parser)


def _main(values):
    conversion.convert(
        values.dataset_name,
        values.dataset_dir,
        shard=values.shard,
        train_shards=values.train_shards,
        source=values.source,
        raw_dir=values.raw_dir,
        tfds_dir=values.tfds_dir,
        labels=values.labels and _labels(values.labels),
        allow_other_archives=values.allow_other_archives,
        num_processes=values.num_processes,
        report=program.report,
    )


def _labels(text):
    names = read_lines(text, "labels") if os.path.exists(text) else text.split(",")
    names = [name.strip() for name in names]
    # Only at the end, since places number the classes.
    while names and not names[-1]:
        del names[-1]
    return names


run = program.console_command("download_and_convert_data", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

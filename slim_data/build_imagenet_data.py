r"""Writes ImageNet (ILSVRC 2012) as TFRecords.

    python -m slim_data.build_imagenet_data --train_directory raw-data/train \
        --validation_directory raw-data/validation \
        --labels_file raw-data/imagenet_lsvrc_2015_synsets.txt \
        --imagenet_metadata_file raw-data/imagenet_metadata.txt \
        --bounding_box_file raw-data/imagenet_2012_bounding_boxes.csv \
        --output_directory ~/dataset/imagenet-data

reads <directory>/<synset>/*.JPEG and writes validation-00000-of-00128, train-00000-of-01024 and so
on, shuffled in a fixed order. Classes are numbered from 1 in the order of the labels file. JPEG
files are kept byte for byte; PNG and CMYK content becomes RGB JPEG of quality 100. Repeat the
command to resume an interrupted conversion.

scripts/download_and_preprocess_imagenet.sh makes all of these files from the official archives.
With --tfds_dir, images come from tensorflow-datasets' imagenet2012, without bounding boxes.
"""

import functools

from slim_data.cli import image_folder_flags, program
from slim_data.common import arguments
from slim_data.common.errors import DataError
from slim_data.datasets.imagenet import bounding_boxes, records, tfds, wordnet
from slim_data.datasets.sources import image_folders
from slim_data.files import checksums


def _add_arguments(parser):
    image_folder_flags.add_arguments(
        parser, train_shards=1024, validation_shards=128, num_threads=8
    )
    for flag, default, text in (
        ("labels_file", "imagenet_lsvrc_2015_synsets.txt", "text file with one synset per line"),
        ("imagenet_metadata_file", "imagenet_metadata.txt", "lines of synset, tab and names"),
        (
            "bounding_box_file",
            "./imagenet_2012_bounding_boxes.csv",
            "lines of file name, xmin, ymin, xmax, ymax, relative to the image's size",
        ),
    ):
        parser.add_argument(
            f"--{flag}", default=default, type="path", help=f"{text} (default: %(default)s)"
        )
    parser.add_argument(
        "--tfds_dir",
        type="path",
        help="instead of the two folders and the bounding boxes: tensorflow-datasets' data_dir "
        "with imagenet2012, which is prepared if its downloads/manual holds the archives",
    )
    program.add_boolean(parser, "raw_pixel", "store pixels instead of JPEG files")
    parser.add_argument(
        "--resize_dimen",
        type=int,
        default=0,
        help="with --raw_pixel: resize images to squares of this many pixels; 0 (default): keep",
    )


def _main(values):
    arguments.check_at_least(0, resize_dimen=values.resize_dimen)
    if values.resize_dimen and not values.raw_pixel:
        raise DataError(
            f"`resize_dimen` needs --raw_pixel True. Received: resize_dimen={values.resize_dimen}"
        )
    synsets = image_folders.read_labels(values.labels_file)
    for synset in synsets:
        wordnet.check_wordnet_id(synset, f"`labels_file` {values.labels_file}")
    example_builder = records.ExampleBuilder(
        records.read_names(values.imagenet_metadata_file, synsets),
        raw_side=values.resize_dimen if values.raw_pixel else None,
    )
    options = {
        "synsets": checksums.sha256(values.labels_file),
        "metadata": checksums.sha256(values.imagenet_metadata_file),
        "raw_pixel": values.raw_pixel,
        "resize_dimen": values.resize_dimen,
    }
    if values.tfds_dir:
        for split in image_folder_flags.SPLITS:
            if getattr(values, f"{split}_directory"):
                raise DataError(f"`tfds_dir` replaces --{split}_directory: give only one of them")
        sources = tfds.find_sources(values.tfds_dir, example_builder, options)
    else:
        sources = _folder_sources(values, synsets, example_builder, options)
    image_folder_flags.write_sources(values, sources)


def _folder_sources(values, synsets, example_builder, options):
    boxes = bounding_boxes.read_boxes(values.bounding_box_file)
    number = sum(map(len, boxes.values()))
    program.report(f"Read {number} bounding boxes of {len(boxes)} images")
    build = functools.partial(example_builder.for_files, values.bounding_box_file)
    options = options | {"bounding boxes": checksums.sha256(values.bounding_box_file)}
    return image_folder_flags.find_sources(values, synsets, records.PATTERN, build, options)


run = program.console_command("build_imagenet_data", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

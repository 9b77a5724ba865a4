r"""Writes folders of images as TFRecords, one folder per class.

    python -m slim_data.build_image_data --train_directory flowers/train \
        --validation_directory flowers/validation --labels_file flowers/labels.txt \
        --output_directory ~/dataset/flowers-data

reads <directory>/<label>/* (JPEG, PNG, GIF, WebP or BMP, recognized by content) and writes
validation-00000-of-00002, train-00000-of-00002 and so on, in a shuffled but fixed order. Classes
are numbered from 1 in the order of the labels file. JPEG files are kept byte for byte, unless they
are CMYK or turned by EXIF; all others become RGB JPEG of quality 100. Repeat the command to resume
an interrupted conversion. Train with --dataset_name folder; labels.txt beside the files names the
classes. `terngrad convert folder` needs neither a labels file nor a folder of validation images.
"""

from slim_data.cli import image_folder_flags, program
from slim_data.datasets.sources import image_folders, labels_file
from slim_data.files import checksums


def _add_arguments(parser):
    image_folder_flags.add_arguments(parser, train_shards=2, validation_shards=2, num_threads=2)
    parser.add_argument(
        "--labels_file",
        required=True,
        type="path",
        help="text file with one label (folder name) per line",
    )


def _main(values):
    labels = image_folders.read_labels(values.labels_file)
    build = image_folders.example_builder(labels)
    options = {"labels": checksums.sha256(values.labels_file)}
    sources = image_folder_flags.find_sources(values, labels, "*", build, options)
    image_folder_flags.write_sources(values, sources)
    labels_file.write_labels(values.output_directory, labels, label_offset=1)


run = program.console_command("build_image_data", __doc__, _add_arguments, _main)


if __name__ == "__main__":
    run()

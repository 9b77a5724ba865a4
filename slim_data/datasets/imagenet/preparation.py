"""Prepares the input of `build_imagenet_data` from the official archives in a folder.

| made in `raw-data` | from |
|---|---|
| the lists of classes, names and validation labels | `ILSVRC2012_devkit_t12.tar.gz` |
| `train/<synset>` | `ILSVRC2012_img_train.tar` |
| `validation/<synset>` | `ILSVRC2012_img_val.tar`, or images in `validation` |
| `imagenet_2012_bounding_boxes.csv` | `ILSVRC2012_bbox_train_v2.tar.gz` |

Existing parts are kept and need no archive. Missing archives are downloaded with an account,
see `official_archives`.
"""

import os
from collections.abc import Callable

from slim_data.common import progress
from slim_data.common.errors import DataError
from slim_data.datasets.imagenet import devkit, extraction, official_archives, wordnet
from slim_data.datasets.imagenet.official_archives import ANNOTATIONS, DEVKIT, TRAIN, VALIDATION
from slim_data.files.atomic import write_lines
from slim_data.files.text_files import read_lines

RAW = "raw-data"
SYNSETS = "imagenet_lsvrc_2015_synsets.txt"
METADATA = "imagenet_metadata.txt"
VALIDATION_LABELS = "imagenet_2012_validation_synset_labels.txt"
LISTS = (SYNSETS, METADATA, VALIDATION_LABELS)
BOXES = "imagenet_2012_bounding_boxes.csv"
# Earlier scripts put the annotations here.
_OTHER_ANNOTATIONS = os.path.join(RAW, "bounding_boxes", "annotations.tar.gz")


def prepare(data_dir: str | os.PathLike, report: Callable[[str], object]) -> None:
    """Creates all missing parts of `raw-data`."""
    if not os.path.isdir(data_dir):
        raise DataError(f"DATA_DIR must be a folder that exists. Received: {data_dir!r}")
    try:
        os.makedirs(os.path.join(data_dir, RAW), exist_ok=True)
        if not all(os.path.isfile(_raw(data_dir, name)) for name in LISTS):
            _prepare_lists(data_dir, report)
        synsets = read_wordnet_ids(_raw(data_dir, SYNSETS))
        labels = read_wordnet_ids(_raw(data_dir, VALIDATION_LABELS))
        _prepare_images(data_dir, synsets, labels, report)
    except OSError as error:
        raise DataError(f"{error.filename or data_dir}: {error.strerror or error}") from error


def _prepare_lists(data_dir, report):
    # Others, too, so that one message names all archives.
    made = {TRAIN: "train", VALIDATION: "validation", ANNOTATIONS: BOXES}
    others = [name for name, part in made.items() if not os.path.exists(_raw(data_dir, part))]
    _provide(data_dir, [DEVKIT, *others], report)
    kit = devkit.read_devkit(_archive(data_dir, DEVKIT))
    for name, lines in (
        (SYNSETS, kit.names),
        (METADATA, [f"{synset}\t{names}" for synset, names in kit.names.items()]),
        (VALIDATION_LABELS, kit.validation),
    ):
        path = _raw(data_dir, name)
        if not os.path.isfile(path):
            write_lines(path, lines)
            report(f"Wrote {len(lines)} lines to {path}")


def _prepare_images(data_dir, synsets, labels, report):
    train, validation, boxes = (_raw(data_dir, n) for n in ("train", "validation", BOXES))
    moved = extraction.sort_validation(validation, labels)
    if moved:
        report(f"Sorted {moved} validation images into the folders of their classes")
    needed = {
        TRAIN: extraction.missing_synsets(train, synsets),
        VALIDATION: extraction.missing_validation(validation, labels),
        ANNOTATIONS: not os.path.exists(boxes),
    }
    _provide(data_dir, [archive for archive, is_needed in needed.items() if is_needed], report)
    if needed[TRAIN]:
        with progress.progress_bar(TRAIN, len(synsets), "classes") as advance:
            extraction.extract_train(_archive(data_dir, TRAIN), train, synsets, advance)
        report(f"Extracted the training images of {len(synsets)} classes to {train}")
    if needed[VALIDATION]:
        with progress.progress_bar(VALIDATION, len(labels)) as advance:
            path = _archive(data_dir, VALIDATION)
            extraction.extract_validation(path, validation, labels, advance)
        report(f"Extracted {len(labels)} validation images to {validation}")
    if needed[ANNOTATIONS]:
        with progress.progress_bar(ANNOTATIONS, None, "annotations") as advance:
            path = _archive(data_dir, ANNOTATIONS)
            num_annotations, num_boxes = extraction.write_boxes(path, boxes, synsets, advance)
        report(f"Wrote {num_boxes} bounding boxes of {num_annotations} annotations to {boxes}")


def read_wordnet_ids(path: str) -> list[str]:
    """Returns the WordNet ids of a list, written by this module or by the user."""
    lines = [
        wordnet.check_wordnet_id(word, path) for line in read_lines(path) for word in line.split()
    ]
    if not lines:
        raise DataError(f"{path} is empty: remove it and run this command again")
    return lines


def _raw(data_dir, name):
    return os.path.join(data_dir, RAW, name)


def _archive(data_dir, name):
    """Returns the path of an archive, which may be missing."""
    places = [name, _OTHER_ANNOTATIONS] if name == ANNOTATIONS else [name]
    paths = [os.path.join(data_dir, place) for place in places]
    return next((path for path in paths if os.path.isfile(path)), paths[0])


def _provide(data_dir, names, report):
    """Downloads the missing archives, or raises DataError that says how to get them."""
    missing = [name for name in names if not os.path.isfile(_archive(data_dir, name))]
    if missing and not official_archives.has_account():
        raise DataError(
            f"{data_dir} lacks {', '.join(missing)}. Log in to https://image-net.org, which gives "
            "the archives of ILSVRC 2012 to registered users, put the missing files into that "
            f"folder and run this command again; or set {official_archives.USERNAME} and "
            f"{official_archives.ACCESS_KEY} to those of your account"
        )
    for name in missing:
        official_archives.fetch_archive(name, data_dir, report)

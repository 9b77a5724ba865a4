"""Extracts ImageNet's (ILSVRC 2012) archives to one folder per class and a list of boxes.

Each function resumes after an interruption. Only members named like images or annotations are
written; a class archive with other members is refused.
"""

import os
import re
from collections.abc import Callable, Sequence

from slim_data.common.errors import DataError, errors_of
from slim_data.common.progress import ignore
from slim_data.datasets.imagenet import bounding_boxes
from slim_data.files import archives
from slim_data.files.atomic import atomic_directory, atomic_write, write_bytes, write_lines

MAX_IMAGE_SIZE = 2**26
MAX_ANNOTATION_SIZE = 2**20
MAX_ANNOTATIONS_SIZE = 2**33

_IMAGE = re.compile(r"(?:\./)?(n[0-9]{8}_[0-9]+\.JPEG)")
_VALIDATION_IMAGE = re.compile(r"(?:\./)?(?:ILSVRC2012_img_val/)?(ILSVRC2012_val_[0-9]{8}\.JPEG)")
_ANNOTATION = re.compile(r"(?:\S+/)?(n[0-9]{8})/(n[0-9]{8}_[0-9]+)\.xml")


def missing_synsets(folder: str, synsets: Sequence[str]) -> list[str]:
    """Returns the classes without a folder of training images."""
    return [synset for synset in synsets if not os.path.isdir(os.path.join(folder, synset))]


def extract_train(
    path: str, folder: str, synsets: Sequence[str], progress: Callable[[int], object] = ignore
) -> None:
    """Writes the training images to one folder per class, which appears when complete.

    Args:
        path: `ILSVRC2012_img_train.tar`, an archive of archives `<synset>.tar`.
        synsets: WordNet ids; archives of other classes are ignored.
        progress: function of the number of finished classes.
    """
    wanted = missing_synsets(folder, synsets)
    done = len(synsets) - len(wanted)
    with archives.open_plain_archive(path) as archive:
        members = archives.list_members(archive)
        for synset in wanted:
            member = members.get(f"{synset}.tar") or members.get(f"./{synset}.tar")
            if member is None:
                raise DataError(f"{path}: the archive lacks {synset}.tar")
            with archives.open_nested_archive(archive, member) as images:
                _extract_class(images, folder, synset)
            done += 1
            progress(done)


def _extract_class(archive, folder, synset):
    with atomic_directory(os.path.join(folder, synset)) as partial:
        for member in archives.iterate_members(archive):
            name = _IMAGE.fullmatch(member.name)
            if name is None or not name[1].startswith(f"{synset}_"):
                raise DataError(
                    f"{archive.name}: the archive must hold {synset}_<number>.JPEG only. "
                    f"Received: {member.name!r}"
                )
            data = archives.read_member(archive, member, MAX_IMAGE_SIZE)
            write_bytes(os.path.join(partial, name[1]), data)
        if not os.listdir(partial):
            raise DataError(f"{archive.name}: the archive is empty")


def missing_validation(folder: str, labels: Sequence[str]) -> dict[str, str]:
    """Returns {name: class} of the validation images that their class's folder lacks.

    Args:
        labels: their WordNet ids, by their numbers from 1.
    """
    names = {f"ILSVRC2012_val_{i:08d}.JPEG": label for i, label in enumerate(labels, 1)}
    there = {(s, n) for s in set(labels) for n in _listed(os.path.join(folder, s))}
    return {name: label for name, label in names.items() if (label, name) not in there}


def _listed(folder):
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def sort_validation(folder: str, labels: Sequence[str]) -> int:
    """Moves validation images from the folder itself to class folders; returns their number."""
    there = set(_listed(folder))
    moved = {n: s for n, s in missing_validation(folder, labels).items() if n in there}
    for name, synset in moved.items():
        os.makedirs(os.path.join(folder, synset), exist_ok=True)
        os.rename(os.path.join(folder, name), os.path.join(folder, synset, name))
    return len(moved)


def extract_validation(
    path: str, folder: str, labels: Sequence[str], progress: Callable[[int], object] = ignore
) -> None:
    """Extracts the missing validation images of `ILSVRC2012_img_val.tar` to their classes' folders.

    Args:
        progress: function of the number of images in place.
    """
    missing = missing_validation(folder, labels)
    for synset in set(missing.values()):
        os.makedirs(os.path.join(folder, synset), exist_ok=True)
    with archives.open_plain_archive(path) as archive:
        for member in archives.iterate_members(archive):
            name = _VALIDATION_IMAGE.fullmatch(member.name)
            if name is None or name[1] not in missing:
                continue
            data = archives.read_member(archive, member, MAX_IMAGE_SIZE)
            place = os.path.join(folder, missing.pop(name[1]), name[1])
            with atomic_write(place) as partial:
                write_bytes(partial, data)
            progress(len(labels) - len(missing))
    if missing:
        raise DataError(f"{path}: the archive lacks {min(missing)}")


def write_boxes(
    path: str, csv_path: str, synsets: Sequence[str], progress: Callable[[int], object] = ignore
) -> tuple[int, int]:
    """Writes the bounding boxes of the annotations as a sorted CSV file.

    Annotations sometimes name the image `%s`: the annotation's file and folder give image and
    class. Boxes of other known classes are dropped.

    Args:
        path: `ILSVRC2012_bbox_train_v2.tar.gz`, an archive of `<synset>/<image>.xml`.
        synsets: WordNet ids; annotations of other classes are ignored.
        progress: function of the number of annotations read.

    Returns:
        (number of annotations, number of boxes).
    """
    known = set(synsets)
    lines = []
    count = 0
    archives.check_whole(path, MAX_ANNOTATIONS_SIZE)
    with archives.open_archive(path, MAX_ANNOTATIONS_SIZE) as archive:
        for member in archives.iterate_members(archive):
            name = _ANNOTATION.fullmatch(member.name)
            if name is None or name[1] not in known:
                continue
            data = archives.read_member(archive, member, MAX_ANNOTATION_SIZE)
            with errors_of(f"{path}: {member.name}"):
                boxes = bounding_boxes.from_xml(data)
            boxes = bounding_boxes.of_class(boxes, name[1], known)
            lines += bounding_boxes.lines(f"{name[2]}.JPEG", boxes)
            count += 1
            progress(count)
    if not lines:
        raise DataError(f"{path}: the archive holds no boxes <synset>/<image>.xml of the classes")
    write_lines(csv_path, sorted(lines))
    return count, len(lines)

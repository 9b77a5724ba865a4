"""Extracts the folders of flower photos that `build_image_data` reads from their archive."""

import os
import random
import tarfile
from collections.abc import Callable, Mapping

from slim_data.common import progress
from slim_data.common.errors import DataError
from slim_data.datasets import flowers
from slim_data.datasets.sources import image_folders
from slim_data.files import archives, download
from slim_data.files.atomic import atomic_directory, write_bytes, write_lines

RAW = "raw-data"
LABELS_FILE = "labels.txt"
VALIDATION_PER_CLASS = 100
SEED = 0


def prepare(data_dir: str | os.PathLike, report: Callable[[str], object]) -> None:
    """Creates `raw-data/train/<class>`, `raw-data/validation/<class>` and `raw-data/labels.txt`.

    Draws 100 validation photos per class with a fixed seed. Existing folders are kept.

    Args:
        data_dir: folder of `flower_photos.tgz`, which is downloaded if missing.
    """
    folders = {
        (split, label): os.path.join(data_dir, RAW, split, label)
        for split in ("train", "validation")
        for label in flowers.LABELS
    }
    missing = {key: path for key, path in folders.items() if not os.path.isdir(path)}
    try:
        if missing:
            with progress.progress_bar(
                flowers.ARCHIVE.name, flowers.ARCHIVE.size, "bytes"
            ) as advance:
                path = download.fetch_file(flowers.ARCHIVE, data_dir, progress=advance)
            number = _extract(path, missing)
            report(f"Extracted {number} photos to {os.path.join(data_dir, RAW)}")
        labels_path = os.path.join(data_dir, RAW, LABELS_FILE)
        write_lines(labels_path, sorted(flowers.LABELS))
    except OSError as error:
        raise DataError(f"{error.filename or data_dir}: {error.strerror or error}") from error


def _extract(path, folders):
    """Writes the photos of some (split, class) to their folders; returns their number."""
    number = 0
    with archives.open_archive(path) as archive:
        photos = draw(path, archives.list_members(archive))
        for key, folder in folders.items():
            with atomic_directory(folder) as partial:
                # File order unpacks the archive once per folder.
                for member in sorted(photos[key], key=lambda member: member.offset):
                    data = archives.read_member(archive, member, flowers.MAX_PHOTO_SIZE)
                    write_bytes(os.path.join(partial, os.path.basename(member.name)), data)
                    number += 1
    return number


def draw(
    path: str, members: Mapping[str, tarfile.TarInfo]
) -> dict[tuple[str, str], list[tarfile.TarInfo]]:
    """Returns {(split, class): entries of the photos}, given an archive's {name: entry}."""
    generator = random.Random(SEED)
    photos = {}
    for label in flowers.LABELS:
        found = [flowers.PHOTO.fullmatch(name) for name in sorted(members)]
        names = [match[0] for match in found if match and match[1] == label]
        if len(names) <= VALIDATION_PER_CLASS:
            raise DataError(
                f"{path}: the archive must hold more than {VALIDATION_PER_CLASS} photos "
                f"flower_photos/{label}/<name>.jpg. Received: {len(names)}"
            )
        image_folders.shuffle(names, generator)
        drawn = names[:VALIDATION_PER_CLASS]
        photos["validation", label] = [members[name] for name in drawn]
        photos["train", label] = [members[name] for name in names[VALIDATION_PER_CLASS:]]
    return photos

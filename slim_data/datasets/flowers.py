"""The flower photos of TensorFlow's tutorials from their archive.

Source: The TensorFlow Team, Flowers, 2019: 3,670 photos of five kinds, each in the folder of its
kind inside `flower_photos.tgz`.
"""

import os
import random
import re

from slim_data.common.errors import DataError
from slim_data.common.lazy import tf
from slim_data.files import archives, checksums, download
from slim_data.tfrecord import examples

LABELS = ("daisy", "dandelion", "roses", "sunflowers", "tulips")
LABEL_OFFSET = 1
ARCHIVE = "flower_photos.tgz"
DOWNLOADS = (
    download.File(
        name=ARCHIVE,
        urls=(
            f"https://storage.googleapis.com/download.tensorflow.org/example_images/{ARCHIVE}",
            f"http://download.tensorflow.org/example_images/{ARCHIVE}",
        ),
        size=228813984,
        sha256="4c54ace7911aaffe13a365c34f650e71dd5bf1be0a58b464e5a7183e3e595d9c",
    ),
)
NUM_PHOTOS = 3670
NUM_VALIDATION = 350
MAX_PHOTO_SIZE = 2**24
SEED = 0

_PHOTO = re.compile(rf"flower_photos/({'|'.join(LABELS)})/\w[\w .-]*\.jpg")
_JPEG_START = b"\xff\xd8\xff"


def missing(source):
    """Returns the `download.File`s that a folder lacks."""
    return download.missing(DOWNLOADS, source)


def identity(source):
    """Returns what the examples' content depends on."""
    return checksums.identity([_path(source)])


def num_validation(num_photos):
    """Returns how many photos are for validation: 350 of 3,670, and as large a part of others."""
    return round(num_photos * NUM_VALIDATION / NUM_PHOTOS)


def generate_examples(source, split, start=0, stop=None):
    """Yields the serialized tf.Examples of a split, in an order that is shuffled but fixed.

    The bytes of the photos stay as they are, and nothing is extracted. The photos that are asked
    for are held in memory, 225 MB for all.

    Args:
        source: folder that holds `flower_photos.tgz`.
        split: "train" or "validation".
        start: number of the first example to yield, counted from 0.
        stop: number of the example to end before; by default there is none.

    Raises:
        DataError: the archive is missing, damaged or holds no such photos.
    """
    with archives.opened(_path(source)) as archive:
        wanted = _photos(archive)[split][start:stop]
        # In the archive's order, so that it is unpacked once.
        by_place = sorted(wanted, key=lambda member: member.offset)
        data = {m.name: archives.read(archive, m, MAX_PHOTO_SIZE) for m in by_place}
    for member in wanted:
        photo = data.pop(member.name)
        yield _example(photo, member.name, _path(source))


def num_examples(source, split):
    """Returns how many examples `generate_examples` yields, after a check of the whole archive."""
    path = _path(source)
    archives.check_whole(path)
    with archives.opened(path) as archive:
        return len(_photos(archive)[split])


def _path(source):
    path = os.path.join(source, ARCHIVE)
    if not os.path.isfile(path):
        raise DataError(f"`raw_dir` must hold {ARCHIVE}. Received: raw_dir={str(source)!r}")
    return path


def _photos(archive):
    """Returns {split: the archive's entries of its photos}."""
    members = archives.files(archive)
    names = sorted(name for name in members if _PHOTO.fullmatch(name))
    # Only `random()` is promised to give the same numbers with every release of Python.
    place = random.Random(SEED)
    names.sort(key=lambda name: place.random())
    number = num_validation(len(names))
    if number < 1:
        raise DataError(
            f"{archive.name}: the archive must hold photos flower_photos/<kind>/<name>.jpg of "
            f"{', '.join(LABELS)}, at least 6. Received: {len(names)}"
        )
    parts = {"validation": names[:number], "train": names[number:]}
    return {split: [members[name] for name in part] for split, part in parts.items()}


def _example(photo, name, path):
    label = _PHOTO.fullmatch(name)[1]
    try:
        if not photo.startswith(_JPEG_START):
            raise DataError(f"{path}: {name} is no JPEG file")
        shape = tf.io.decode_jpeg(photo, channels=3).shape
    except tf.errors.InvalidArgumentError as error:
        raise DataError(f"{path}: {name} cannot be decoded") from error
    return examples.build(photo, "jpg", shape, LABELS.index(label) + LABEL_OFFSET, label)

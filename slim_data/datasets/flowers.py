"""TensorFlow's flower photos, read from their archive.

Source: The TensorFlow Team, Flowers, 2019: 3,670 photos of five kinds, in one folder per kind
inside `flower_photos.tgz`.
"""

import random
import re
from collections.abc import Iterator, Mapping

from slim_data.common.errors import DataError
from slim_data.common.lazy import tf
from slim_data.datasets.builder import DatasetBuilder, DatasetInfo
from slim_data.datasets.sources import image_folders
from slim_data.files import archives, download
from slim_data.preprocessing import styles
from slim_data.tfrecord import examples

LABELS = ("daisy", "dandelion", "roses", "sunflowers", "tulips")
LABEL_OFFSET = 1
ARCHIVE = download.File(
    name="flower_photos.tgz",
    urls=tuple(
        f"{place}/example_images/flower_photos.tgz"
        for place in (
            "https://storage.googleapis.com/download.tensorflow.org",
            "http://download.tensorflow.org",
        )
    ),
    size=228813984,
    sha256="4c54ace7911aaffe13a365c34f650e71dd5bf1be0a58b464e5a7183e3e595d9c",
)
NUM_PHOTOS = 3670
NUM_VALIDATION = 350
MAX_PHOTO_SIZE = 2**24
SEED = 0

# The group is the kind of flower.
PHOTO = re.compile(rf"flower_photos/({'|'.join(LABELS)})/\w[\w .-]*\.jpg")
_JPEG_START = b"\xff\xd8\xff"


def num_validation(num_photos: int) -> int:
    """Returns the number of validation photos: 350 of 3,670, or the same fraction."""
    return round(num_photos * NUM_VALIDATION / NUM_PHOTOS)


class Flowers(DatasetBuilder):
    """3,670 photos of flowers, 350 of them for validation."""

    info = DatasetInfo(
        name="flowers",
        title="Flowers",
        labels=LABELS,
        channels=3,
        image_size=None,
        splits={"train": NUM_PHOTOS - NUM_VALIDATION, "validation": NUM_VALIDATION},
        preprocessings=styles.PHOTO,
        label_offset=LABEL_OFFSET,
        num_shards={"train": 5, "validation": 5},
        is_sharded=True,
    )
    downloads = (ARCHIVE,)
    tfds_name = "tf_flowers"
    takes_own_images = True

    @classmethod
    def tfds_range(cls, split: str, sizes: Mapping[str, int]) -> tuple[str, int, int]:
        """See the base class; the first photos of the single, shuffled split are for validation."""
        border = num_validation(sizes["train"])
        return ("train", 0, border) if split == "validation" else ("train", border, sizes["train"])

    def num_examples(self, split: str) -> int:
        """See the base class."""
        (path,) = self.raw_paths()
        archives.check_whole(path)
        with archives.open_archive(path) as archive:
            return len(_photos(archive)[split])

    def generate_examples(
        self, split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[bytes]:
        """See the base class; the order is shuffled but fixed.

        Keeps the bytes of the photos. Holds the requested photos in memory: 225 MB for all.
        """
        (path,) = self.raw_paths()
        with archives.open_archive(path) as archive:
            wanted = _photos(archive)[split][start:stop]
            # File order unpacks the archive once.
            by_place = sorted(wanted, key=lambda member: member.offset)
            data = {m.name: archives.read_member(archive, m, MAX_PHOTO_SIZE) for m in by_place}
        for member in wanted:
            yield _example(data.pop(member.name), member.name, path)


def _photos(archive):
    """Returns {split: archive entries of its photos}."""
    members = archives.list_members(archive)
    names = sorted(name for name in members if PHOTO.fullmatch(name))
    image_folders.shuffle(names, random.Random(SEED))
    number = num_validation(len(names))
    if number < 1:
        raise DataError(
            f"{archive.name}: the archive must hold photos flower_photos/<kind>/<name>.jpg of "
            f"{', '.join(LABELS)}, at least 6. Received: {len(names)}"
        )
    parts = {"validation": names[:number], "train": names[number:]}
    return {split: [members[name] for name in part] for split, part in parts.items()}


def _example(photo, name, path):
    label = PHOTO.fullmatch(name)[1]
    try:
        if not photo.startswith(_JPEG_START):
            raise DataError(f"{path}: {name} is not a JPEG file")
        shape = tf.io.decode_jpeg(photo, channels=3).shape
    except tf.errors.InvalidArgumentError as error:
        raise DataError(f"{path}: {name} cannot be decoded") from error
    return examples.build_example(photo, "jpg", shape, LABELS.index(label) + LABEL_OFFSET, label)

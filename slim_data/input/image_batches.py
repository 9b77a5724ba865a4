"""Batches of image files, preprocessed like a data set's records for evaluation."""

import os
from collections.abc import Iterator, Sequence

import numpy as np

from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError, errors_of
from slim_data.common.extras import check_installed
from slim_data.common.lazy import tf
from slim_data.datasets import registry
from slim_data.datasets.builder import DatasetInfo
from slim_data.datasets.sources import image_files
from slim_data.tfrecord.encoded_image import EncodedImage


def image_batches(
    paths: Sequence[str | os.PathLike[str]],
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    batch_size: int,
    image_size: int,
    preprocessing: str | None = None,
    bad: dict[str, str] | None = None,
) -> Iterator[np.ndarray]:
    """Yields image files preprocessed for a network of a data set.

    If the data set's images have one size, files are first resized to it, with averaging if they
    shrink, without keeping the aspect ratio.

    Args:
        paths: JPEG, PNG, GIF, WebP or BMP files, recognized by content. The first picture of an
            animation counts, and images are turned as EXIF says.
        name: one of `DATASETS`.
        data_dir: folder of the data set, required if its labels.txt names the classes.
        batch_size: images per batch; the last may be smaller.
        image_size: height and width of the result in pixels.
        preprocessing: style of the data set. Default: the first.
        bad: receives {path: reason} of unreadable files, which batches omit. Default: the first is
            an error.

    Yields:
        float32 arrays [n, image_size, image_size, channels].

    Raises:
        DataError: an argument is out of range, or a file cannot be decoded; names the file.
    """
    check_at_least(1, batch_size=batch_size, image_size=image_size)
    info = registry.info(name, data_dir)
    style = info.find_preprocessing(preprocessing, image_size)
    check_installed("PIL")
    for start in range(0, len(paths), batch_size):
        images = []
        for path in paths[start : start + batch_size]:
            try:
                images.append(_read(path, info))
            except DataError as error:
                if bad is None:
                    raise
                bad[os.fspath(path)] = str(error)
        if not images:
            continue
        if info.image_size is None:
            ready = [style.evaluate(image, image_size).numpy() for image in images]
            yield np.stack(ready)
        else:
            yield style.evaluate(tf.stack(images), image_size).numpy()


def _read(path: str | os.PathLike[str], info: DatasetInfo):
    """Returns a style's input: uint8 pixels, or an `EncodedImage` if sizes differ."""
    data = image_files.read_image_file(path)
    with errors_of(path):
        data = image_files.upright(data)
        pixels = image_files.decode_image(data, info.channels)
    if info.image_size is None:
        return EncodedImage(tf.constant(data), tf.constant(""), -1, -1, lambda: tf.zeros([0, 4]))
    side = info.image_size
    if pixels.shape[:2] != (side, side):
        pixels = tf.image.resize(pixels, [side, side], method="bilinear", antialias=True)
        pixels = tf.cast(tf.clip_by_value(tf.round(pixels), 0, 255), tf.uint8)
    return pixels

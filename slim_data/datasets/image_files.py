"""Image files of unknown format, recognized by their content and converted for the records."""

import os

import numpy as np

from slim_data.common.errors import DataError
from slim_data.common.lazy import tf
from slim_data.files import opening

_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
_CMYK_COMPONENTS = 4
_QUALITY = 100


def read_image_file(path: str | os.PathLike) -> bytes:
    """Returns the bytes of a file.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with open(path, "rb", opener=opening.regular_file) as file:
            return file.read()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error


def as_jpeg(data: bytes) -> tuple[bytes, tuple[int, int, int]]:
    """Returns an image as a JPEG that every decoder reads as RGB or grey, and its size.

    JPEG files are kept byte for byte, except CMYK. CMYK and PNG files are encoded as RGB of
    quality 100.

    Args:
        data: bytes of a JPEG or PNG file, recognized by content.

    Returns:
        (bytes, (height, width, 3)); decoders must be asked for 3 channels, also for grey images.

    Raises:
        DataError: the data is neither JPEG nor PNG, or is damaged.
    """
    pixels = decode_image(data)
    is_kept = data.startswith(_JPEG_START) and _num_components(data) != _CMYK_COMPONENTS
    if not is_kept:
        # Full colour resolution costs little, since few images are encoded.
        encoded = tf.io.encode_jpeg(pixels, "rgb", _QUALITY, chroma_downsampling=False)
        data = encoded.numpy()
    return data, pixels.shape


def decode_image(data: bytes) -> np.ndarray:
    """Returns the pixels of a JPEG or PNG file as uint8 array [height, width, 3].

    Raises:
        DataError: the data is neither JPEG nor PNG, or is damaged.
    """
    if data.startswith(_JPEG_START):
        decoder = tf.io.decode_jpeg
    elif data.startswith(_PNG_START):
        decoder = tf.io.decode_png
    else:
        raise DataError("it is neither a JPEG nor a PNG image")
    try:
        return decoder(data, channels=3).numpy()
    except tf.errors.InvalidArgumentError:
        raise DataError("the image is damaged and cannot be decoded") from None


def resize_image(pixels: np.ndarray, side: int) -> np.ndarray:
    """Returns an image resized to a square: bilinear, with averaging if it shrinks.

    Args:
        pixels: uint8 array of shape [height, width, 3].
        side: height and width of the result, in pixels.

    Returns:
        uint8 array of shape [side, side, 3].
    """
    resized = tf.image.resize(pixels, [side, side], method="bilinear", antialias=True)
    return np.clip(np.rint(resized.numpy()), 0, 255).astype(np.uint8)


def _num_components(data):
    return int(tf.io.extract_jpeg_shape(data)[2])

"""Image files of unknown format, recognized by their content and converted for the records."""

import io
import os

import numpy as np

from slim_data.common.errors import DataError
from slim_data.common.extras import import_extra
from slim_data.common.lazy import tf
from slim_data.files import opening

_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
# Those that Pillow reads; TensorFlow reads WebP since 2.20 only, and not each of its kinds.
_OTHER_FORMATS = ("GIF", "WEBP", "BMP")
# Of EXIF: {orientation: (quarter turns to the left, whether it is mirrored after these)}.
_ORIENTATION = 0x0112
_TURNS = {
    2: (0, True),
    3: (2, False),
    4: (2, True),
    5: (3, True),
    6: (3, False),
    7: (1, True),
    8: (1, False),
}
_CMYK_COMPONENTS = 4
_QUALITY = 100
DAMAGED = "the image is damaged and cannot be decoded"


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


def upright(data: bytes) -> bytes:
    """Returns an image as a JPEG or PNG file that shows it as people see it.

    JPEG and PNG files stay as they are, byte for byte, unless EXIF says that the image is turned or
    mirrored. All others become PNG: RGB, without transparency, of an animation the first picture.

    Args:
        data: bytes of a JPEG, PNG, GIF, WebP or BMP file, whatever its name.

    Raises:
        DataError: it is none of these, or damaged.
    """
    if data.startswith((_JPEG_START, _PNG_START)):
        turns, is_mirrored = _TURNS.get(_orientation(data), (0, False))
        if not turns and not is_mirrored:
            return data
        pixels = np.rot90(decode_image(data), turns)
        pixels = pixels[:, ::-1] if is_mirrored else pixels
    else:
        pixels = _decode_other(data)
    return tf.io.encode_png(np.ascontiguousarray(pixels)).numpy()


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
        raise DataError(DAMAGED) from None


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


def _orientation(data):
    if data.startswith(_PNG_START) and b"eXIf" not in data:
        return 1  # Pillow would decode all of it to find that out
    # Pillow raises errors of many kinds for a header that is not well formed, and others decode
    # such files all the same.
    try:
        with import_extra("PIL.Image").open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            return image.getexif().get(_ORIENTATION, 1)
    except DataError:
        raise
    except Exception:
        return 1


def _decode_other(data):
    pillow, ops = import_extra("PIL.Image"), import_extra("PIL.ImageOps")
    try:
        with pillow.open(io.BytesIO(data), formats=_OTHER_FORMATS) as image:
            return np.asarray(ops.exif_transpose(image).convert("RGB"))
    except Exception:  # of many kinds, as each format has a reader of its own
        raise DataError("it is no JPEG, PNG, GIF, WebP or BMP image, or damaged") from None


def _num_components(data):
    return int(tf.io.extract_jpeg_shape(data)[2])

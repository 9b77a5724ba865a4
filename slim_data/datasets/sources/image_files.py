"""Image files of unknown format, recognized by their content and converted for the records."""

import functools
import io
import os

import numpy as np

from slim_data.common.errors import DataError, os_errors_of
from slim_data.common.extras import import_extra
from slim_data.common.lazy import tf
from slim_data.files import opening
from slim_data.tfrecord.encoded_image import DCT_METHOD

_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"
# Read by Pillow; TensorFlow reads WebP since 2.20 only, and not all of it.
_OTHER_FORMATS = ("GIF", "WEBP", "BMP")
# EXIF {orientation: (quarter turns to the left, whether then mirrored)}.
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
_DAMAGED = "the image is damaged and cannot be decoded"


def read_image_file(path: str | os.PathLike) -> bytes:
    """Returns the bytes of a file."""
    with os_errors_of(path), open(path, "rb", opener=opening.regular_file) as file:
        return file.read()


def upright(data: bytes) -> bytes:
    """Returns an image as a JPEG or PNG file that shows it as people see it.

    JPEG and PNG files stay as they are, unless EXIF turns or mirrors them. Others (GIF, WebP, BMP)
    and CMYK become PNG: RGB, without transparency, of an animation the first picture.
    """
    if data.startswith((_JPEG_START, _PNG_START)):
        turns, is_mirrored = _TURNS.get(_orientation(data), (0, False))
        if not turns and not is_mirrored and not _is_cmyk(data):
            return data
        pixels = np.rot90(decode_image(data), turns)
        pixels = pixels[:, ::-1] if is_mirrored else pixels
    else:
        pixels = _decode_other(data)
    return tf.io.encode_png(np.ascontiguousarray(pixels)).numpy()


def as_jpeg(data: bytes) -> tuple[bytes, tuple[int, int, int]]:
    """Returns (bytes, (height, width, 3)) of a JPEG that every decoder reads as RGB or grey.

    JPEG files are kept byte for byte, except CMYK. CMYK and PNG become RGB of quality 100. Ask
    decoders for 3 channels, also for grey images.
    """
    pixels = decode_image(data)
    if not data.startswith(_JPEG_START) or _is_cmyk(data):
        # Few images are encoded, so full colour resolution costs little.
        encoded = tf.io.encode_jpeg(pixels, "rgb", _QUALITY, chroma_downsampling=False)
        data = encoded.numpy()
    return data, pixels.shape


def decode_image(data: bytes, channels: int = 3) -> np.ndarray:
    """Returns the pixels of a JPEG or PNG file as uint8 array [height, width, channels]."""
    if data.startswith(_JPEG_START):
        decoder = functools.partial(tf.io.decode_jpeg, dct_method=DCT_METHOD)
    elif data.startswith(_PNG_START):
        decoder = tf.io.decode_png
    else:
        raise DataError("it is neither a JPEG nor a PNG image")
    try:
        return decoder(data, channels=channels).numpy()
    except tf.errors.InvalidArgumentError:
        raise DataError(_DAMAGED) from None


def resize_image(pixels: np.ndarray, side: int) -> np.ndarray:
    """Returns an image, uint8 [height, width, 3], as a square: bilinear, averaged if it shrinks."""
    resized = tf.image.resize(pixels, [side, side], method="bilinear", antialias=True)
    return np.clip(np.rint(resized.numpy()), 0, 255).astype(np.uint8)


def _orientation(data):
    if data.startswith(_PNG_START) and b"eXIf" not in data:
        return 1  # Pillow would decode the whole image
    # Pillow raises many kinds of errors for malformed headers, which other decoders accept.
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
    except Exception:  # each format raises its own kinds
        raise DataError("it is no JPEG, PNG, GIF, WebP or BMP image, or damaged") from None


def _is_cmyk(data):
    if not data.startswith(_JPEG_START):
        return False
    try:
        return int(tf.io.extract_jpeg_shape(data)[2]) == _CMYK_COMPONENTS
    except tf.errors.InvalidArgumentError:
        raise DataError(_DAMAGED) from None

"""An encoded image of any size: its size, and its pixels or a part of them."""

from slim_data.lazy import tf

CHANNELS = 3
RAW = "RAW"

_NEIGHBOURS = 2


class Photo:
    """Decodes an image, or just a part of it, when asked to.

    JPEG, PNG, GIF and BMP are told by their content, whatever the record says: some JPEG files of
    ImageNet are PNG. Of a JPEG only the part asked for is decoded. Images of the format "RAW" are
    bytes of red, green and blue, row by row, and are not decoded at all.

    Args:
        encoded: scalar string tensor, the image file.
        image_format: scalar string tensor.
        height, width: int64 scalars, used for "RAW" only.
        boxes: float32 tensor of shape [n, 4]: ymin, xmin, ymax, xmax of objects, as fractions of
            height and width.
    """

    def __init__(self, encoded, image_format, height, width, boxes):
        self.boxes = boxes
        self._encoded = encoded
        is_raw = image_format == RAW
        # Pixels may begin with the bytes that a JPEG file begins with.
        self._is_jpeg = tf.logical_and(tf.io.is_jpeg(encoded), tf.logical_not(is_raw))

        def raw():
            return tf.reshape(tf.io.decode_raw(encoded, tf.uint8), [height, width, CHANNELS])

        def decoded():
            return tf.io.decode_image(encoded, CHANNELS, expand_animations=False)

        def jpeg_size():
            return tf.image.extract_jpeg_shape(encoded)[:2], tf.zeros([0, 0, CHANNELS], tf.uint8)

        def other_size():
            pixels = tf.cond(is_raw, raw, decoded)
            return tf.shape(pixels)[:2], pixels

        self._size, self._pixels = tf.cond(self._is_jpeg, jpeg_size, other_size)

    def size(self):
        """Returns height and width, int32 [2]."""
        return self._size

    def pixels(self):
        """Returns all of the image, uint8 [height, width, 3]."""
        return self._jpeg_or_pixels(
            lambda: tf.io.decode_jpeg(self._encoded, CHANNELS), lambda: self._pixels
        )

    def window(self, top, left, height, width):
        """Returns a part of the image, uint8 [height, width, 3].

        Args:
            top, left, height, width: int32 scalars.
        """
        return self._jpeg_or_pixels(
            lambda: self._jpeg_window(top, left, height, width),
            lambda: self._pixels[top : top + height, left : left + width],
        )

    def _jpeg_window(self, top, left, height, width):
        # Colours, of which a JPEG has fewer, are interpolated from their neighbours: without these
        # the outermost columns would come out otherwise than in the whole image.
        begin = tf.maximum(left - _NEIGHBOURS, 0)
        end = tf.minimum(left + width + _NEIGHBOURS, self.size()[1])
        wider = tf.image.decode_and_crop_jpeg(
            self._encoded, tf.stack([top, begin, height, end - begin]), CHANNELS
        )
        return wider[:, left - begin : left - begin + width]

    def _jpeg_or_pixels(self, jpeg, pixels):
        image = tf.cond(self._is_jpeg, jpeg, pixels)
        image.set_shape([None, None, CHANNELS])
        return image

"""Photos: recognized by content, decoded in part, equal in each format."""

import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets.sources import image_files
from slim_data.tfrecord import decoding
from tests.slim_data import photos

IMAGENET = slim_data.info("imagenet")


@tf.function
def read(serialized, window):
    photo, label = decoding.parse_encoded_image(serialized, IMAGENET)
    return photo.size(), photo.decode(), photo.crop(*tf.unstack(window)), photo.boxes, label


class EncodedImageTest(tf.test.TestCase):
    def assert_holds(self, record, expected):
        height, width = expected.shape[:2]
        for window in ((0, 0, height, width), (3, 5, 20, 31), (height - 1, width - 7, 1, 7)):
            top, left, rows, columns = window
            size, whole, part, _, label = read(record, tf.constant(window))
            self.assertAllEqual(size, (height, width))
            self.assertAllEqual(whole, expected)
            self.assertAllEqual(part, expected[top : top + rows, left : left + columns])
            self.assertEqual(label, 1)

    def test_jpeg_png_and_pixels_are_read_in_whole_and_in_part(self):
        image = photos.pixels()
        encoded = photos.jpeg(image)
        self.assert_holds(photos.example(encoded), photos.decode(encoded))
        png = tf.io.encode_png(image).numpy()
        self.assert_holds(photos.example(png, image_format="PNG"), image)
        self.assert_holds(photos.raw_example(image), image)

    def test_jpeg_of_quality_100_is_read_nearly_without_loss(self):
        image = photos.pixels()
        data, _ = image_files.as_jpeg(tf.io.encode_png(image).numpy())
        self.assert_holds(photos.example(data), photos.decode(data))
        errors = np.abs(photos.decode(data).astype(int) - image)
        self.assertLess(np.mean(errors), 0.5)  # 1 or more by TensorFlow's default

    def test_images_of_a_data_set_of_one_size_are_decoded_as_exactly(self):
        for name in ("cifar10", "mnist"):
            info = slim_data.info(name)
            image = photos.pixels(info.image_size, info.image_size)[..., : info.channels]
            for encoded in (photos.jpeg(image), tf.io.encode_png(image).numpy()):
                record = photos.example(encoded)
                expected = image_files.decode_image(encoded, info.channels)
                images, _ = decoding.decode_examples(tf.constant([record, record]), info)
                self.assertAllEqual(images, [expected, expected])
                self.assertAllEqual(decoding.decode_example(record, info)[0], expected)

    def test_content_decides_and_not_the_format_field(self):
        image = photos.pixels()
        for stated in ("JPEG", "jpg", ""):
            png = photos.example(tf.io.encode_png(image).numpy(), image_format=stated)
            self.assert_holds(png, image)
        encoded = photos.jpeg(image)
        jpeg = photos.example(encoded, image_format="png")
        self.assert_holds(jpeg, photos.decode(encoded))

    def test_pixels_that_start_like_a_jpeg_stay_pixels(self):
        image = photos.pixels()
        image[0, 0] = 255, 216, 255
        self.assert_holds(photos.raw_example(image), image)

    def test_grey_images_become_red_green_and_blue(self):
        grey = photos.pixels()[..., :1]
        encoded = photos.jpeg(grey)
        expected = np.repeat(photos.decode(encoded, 1), 3, axis=-1)
        self.assert_holds(photos.example(encoded), expected)
        png = tf.io.encode_png(grey).numpy()
        self.assert_holds(photos.example(png), np.repeat(grey, 3, axis=-1))

    def test_boxes_are_ymin_xmin_ymax_xmax(self):
        encoded = photos.jpeg(photos.pixels())
        boxes = [(0.25, 0.0, 0.5, 0.75), (0.5, 0.5, 1.0, 1.0)]
        window = tf.constant([0, 0, 1, 1])
        for given in (boxes, boxes[:1], []):
            found = read(photos.example(encoded, boxes=given), window)[3]
            self.assertAllEqual(found, np.reshape(given, (-1, 4)))

    def test_pixels_of_another_size_than_stated_are_refused(self):
        image = photos.pixels()
        record = photos.example(image.tobytes()[:-1], image_format="RAW", size=image.shape[:2])
        with self.assertRaises(tf.errors.InvalidArgumentError):
            read(record, tf.constant([0, 0, 1, 1]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

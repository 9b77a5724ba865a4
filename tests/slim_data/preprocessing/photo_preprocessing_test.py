"""Preprocessing styles for photos: exact in evaluation, random within bounds in training."""

import colorsys
import math
import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.preprocessing import alexnet, colors, inception, resizing, resnet, vgg
from slim_data.tfrecord import decoding
from tests.slim_data import photos

IMAGENET = slim_data.info("imagenet")
MEAN = np.array([123.68, 116.78, 103.94])
RESNET_MEAN = np.array([0.485, 0.456, 0.406]) * 255
RESNET_DEVIATION = np.array([0.229, 0.224, 0.225]) * 255
STYLES = {
    "inception": inception,
    "alexnet": alexnet,
    "vgg": vgg,
    "resnet": resnet,
}


def evaluate(style, record, size=224):
    photo, _ = decoding.parse_encoded_image(record, IMAGENET)
    return STYLES[style].evaluate(photo, size).numpy()


def augment_many(style, record, num_images, size=224):
    """Returns [num_images, size, size, 3] for the seeds (7, 0), (7, 1) and so on."""

    def augment(number):
        photo, _ = decoding.parse_encoded_image(record, IMAGENET)
        return STYLES[style].augment(photo, size, tf.stack([tf.constant(7, tf.int64), number]))

    stream = tf.data.Dataset.range(num_images).map(augment, num_parallel_calls=2)
    return np.stack(list(stream.as_numpy_iterator()))


def centre(image, size):
    top, left = (image.shape[0] - size) // 2, (image.shape[1] - size) // 2
    return image[top : top + size, left : left + size]


def with_short_side(image, side):
    height, width = image.shape[:2]
    shorter = min(height, width)
    return photos.resized(image, height * side // shorter, width * side // shorter)


class EvaluationTest(tf.test.TestCase):
    def test_every_style_takes_the_same_pixels_as_plain_code(self):
        for height, width in ((60, 80), (300, 211), (375, 500)):
            encoded = photos.jpeg(photos.pixels(height, width))
            image = photos.decode(encoded)
            part = tf.image.central_crop(image, 0.875).numpy()
            expected = {
                "inception": (photos.resized(part, 224, 224) / 255 - 0.5) * 2,
                "alexnet": centre(photos.resized(image, 256, 256), 224) - MEAN,
                "vgg": centre(with_short_side(image, 256), 224) - MEAN,
                "resnet": (centre(with_short_side(image, 256), 224) - RESNET_MEAN)
                / RESNET_DEVIATION,
            }
            for style, values in expected.items():
                found = evaluate(style, photos.example(encoded))
                tolerance = 2e-3 if style in ("alexnet", "vgg") else 2e-5
                self.assertAllClose(found, values, rtol=0, atol=tolerance, msg=style)

    def test_other_sizes_of_the_result(self):
        image = photos.pixels(90, 70)
        record = photos.raw_example(image)
        for style in STYLES:
            for size in (32, 256):
                self.assertEqual(evaluate(style, record, size).shape, (size, size, 3))
        self.assertEqual(evaluate("inception", record, 299).shape, (299, 299, 3))
        expected = centre(photos.resized(image, 256, 256), 65) - MEAN
        self.assertAllClose(evaluate("alexnet", record, 65), expected, atol=2e-3)

    def test_the_short_side_is_exact_and_the_long_one_rounded_down(self):
        for height, width, expected in ((375, 500, (256, 341)), (100, 33, (775, 256))):
            image = np.zeros((height, width, 3), np.uint8)
            self.assertEqual(resizing.resize_smaller_side(image, 256).shape[:2], expected)


class TrainingTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_the_same_seed_gives_the_same_image_and_another_one_another(self):
        record = photos.example(photos.jpeg(photos.pixels(120, 160)))
        for style in STYLES:
            first, second = augment_many(style, record, 6, 64), augment_many(style, record, 6, 64)
            self.assertAllEqual(first, second)
            self.assertLen(np.unique(first.reshape(6, -1), axis=0), 6)
            self.assertEqual((first.shape, first.dtype), ((6, 64, 64, 3), np.float32))

    @pytest.mark.slow
    def test_alexnet_takes_every_part_of_256_pixels_in_both_directions(self):
        size = 253
        record = photos.raw_example(photos.ramp(256, 256))
        found = np.rint(augment_many("alexnet", record, 320, size) + MEAN).astype(int)
        self.assert_all_places(found, size)

    def assert_all_places(self, found, size):
        seen = []
        for image in found:
            top, left = image[..., 0].min(), image[..., 1].min()
            mirrored = bool(image[0, 0, 1] > left)
            part = photos.ramp(256, 256)[top : top + size, left : left + size]
            self.assertAllEqual(image, part[:, ::-1] if mirrored else part)
            seen.append((top, left, mirrored))
        for values, limit in zip(zip(*seen, strict=True), (4, 4, 2), strict=True):
            count = np.bincount(np.array(values, int), minlength=limit)
            self.assertLen(count, limit)
            expected = len(found) / limit
            self.assertAllInRange(count, expected - 5 * expected**0.5, expected + 5 * expected**0.5)

    def test_vgg_draws_sizes_from_256_to_512_and_places(self):
        # The difference of a ramp's neighboring pixels is the inverse scale.
        record = photos.raw_example(photos.ramp(128, 160))
        found = augment_many("vgg", record, 200) + MEAN
        sides, tops, lefts, mirrored = [], [], [], 0
        for image in found:
            # Avoids the borders, where pixels have no outer neighbors.
            steps = np.diff(image[56:168, 112, 0]).mean(), np.diff(image[112, 56:168, 1]).mean()
            self.assertAllClose(abs(steps[1]), steps[0], rtol=2e-2)
            mirrored += steps[1] < 0
            side = 128 / steps[0]
            sides.append(side)
            tops.append(image[112, 112, 0] / 128)
            lefts.append(image[112, 112, 1] / 160)
        self.assertAllInRange(np.array(sides), 256 - 1, 512 + 1)
        self.assertAllClose(np.mean(sides), 384, atol=5 * 74 / 200**0.5)
        self.assertGreater(np.ptp(sides), 240)
        self.assertAllInRange([mirrored], 100 - 36, 100 + 36)
        self.assertAllClose([np.mean(tops), np.mean(lefts)], [0.5, 0.5], atol=0.05)
        self.assertGreater(np.ptp(tops), 0.3)
        self.assertGreater(np.ptp(lefts), 0.4)

    def test_vgg_is_resizing_then_cropping(self):
        image = photos.pixels(100, 130)
        (found,) = augment_many("vgg", photos.raw_example(image), 1)
        draws = tf.random.stateless_uniform([4], [7, 0], alg="philox").numpy()
        side = 256 + int(draws[3] * 257)
        whole = with_short_side(image[:, ::-1] if draws[2] < 0.5 else image, side)
        top, left = (int(d * (n - 223)) for d, n in zip(draws, whole.shape[:2], strict=False))
        part = whole[top : top + 224, left : left + 224]
        self.assertAllClose(found, part - MEAN, atol=2e-3)

    def test_resnet_windows_are_the_first_attempts_that_fit(self):
        generator = np.random.default_rng(0)
        for height, width in ((375, 500), (500, 100), (30, 300), (224, 224)):
            for _ in range(20):
                draws = generator.random((10, 4), np.float32)
                found = resnet.random_crop_box([height, width], draws).numpy()
                self.assertAllEqual(found, self.window(height, width, draws.astype(float)))

    def window(self, height, width, draws):
        """Computes the window in plain Python."""
        for u, v, top, left in draws:
            area = height * width * (0.08 + 0.92 * u)
            ratio = math.exp(math.log(0.75) + v * (math.log(1.333) - math.log(0.75)))
            rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 1 <= rows <= height and 1 <= columns <= width:
                place = int(top * (height - rows + 1)), int(left * (width - columns + 1))
                return [*place, rows, columns]
        rows, columns = height, width
        if width / height < 0.75:
            rows = round(width / 0.75)
        elif width / height > 1.333:
            columns = round(height * 1.333)
        return [(height - rows) // 2, (width - columns) // 2, rows, columns]

    def test_resnet_resizes_its_window(self):
        image = photos.pixels(100, 130)
        (found,) = augment_many("resnet", photos.raw_example(image), 1, 64)
        draws = tf.random.stateless_uniform([41], [7, 0], alg="philox").numpy()
        top, left, rows, columns = self.window(100, 130, draws[1:].reshape(10, 4).astype(float))
        part = image[top : top + rows, left : left + columns]
        part = photos.resized(part[:, ::-1] if draws[0] < 0.5 else part, 64, 64)
        self.assertAllClose(found, (part - RESNET_MEAN) / RESNET_DEVIATION, atol=1e-4)


class InceptionTest(tf.test.TestCase):
    def windows(self, boxes, num_windows=200, height=200, width=300):
        def draw(number):
            return inception.random_crop_box(
                tf.constant([height, width]),
                tf.reshape(tf.constant(boxes, tf.float32), [-1, 4]),
                tf.stack([tf.constant(3, tf.int64), number]),
            )

        stream = tf.data.Dataset.range(num_windows).map(draw)
        return np.stack(list(stream.as_numpy_iterator()))

    def test_windows_keep_to_their_bounds_and_fill_them(self):
        top, left, height, width = self.windows([]).T
        area, ratio = height * width / (200 * 300), width / height
        # Tolerances cover rounding to whole pixels.
        self.assertAllInRange(area, 0.045, 1.0)
        self.assertAllInRange(ratio, 0.72, 1.37)
        self.assertLess(area.min(), 0.2)
        self.assertGreater(area.max(), 0.7)
        self.assertGreater(np.ptp(ratio), 0.4)
        self.assertAllGreaterEqual(np.stack([top, left]), 0)
        self.assertAllLessEqual(top + height, 200)
        self.assertAllLessEqual(left + width, 300)
        self.assertAllClose(np.mean(left + width / 2), 150, atol=15)

    def test_windows_hold_a_tenth_of_a_box(self):
        box = (0.7, 0.8, 0.95, 1.0)
        ymin, xmin, ymax, xmax = np.array(box) * [200, 300, 200, 300]
        outside = 0
        for top, left, height, width in self.windows([box]):
            rows = min(top + height, ymax) - max(top, ymin)
            columns = min(left + width, xmax) - max(left, xmin)
            covered = max(rows, 0) * max(columns, 0) / ((ymax - ymin) * (xmax - xmin))
            # A tolerance of one pixel.
            self.assertGreater(covered, 0.05)
            outside += top + height < ymax or left > xmin
        self.assertGreater(outside, 20)

    def test_images_are_parts_resized_in_four_ways_and_mirrored(self):
        image = photos.pixels(100, 130)
        with_colors = inception.augment_colors
        self.addCleanup(setattr, inception, "augment_colors", with_colors)
        inception.augment_colors = lambda image, draws: image
        record = photos.raw_example(image)
        seen = set()
        for number, found in enumerate(augment_many("inception", record, 40, 64)):
            seed = tf.constant([7, number], tf.int64)
            window = inception.random_crop_box([100, 130], tf.zeros([0, 4]), seed)
            top, left, rows, columns = window.numpy()
            part = image[top : top + rows, left : left + columns]
            expected = {
                (method, mirrored): tf.image.resize(p, (64, 64), method).numpy() / 127.5 - 1
                for method in ("bilinear", "nearest", "bicubic", "area")
                for mirrored, p in ((False, part), (True, part[:, ::-1]))
            }
            match = [k for k, v in expected.items() if np.abs(v - found).max() < 1e-4]
            self.assertLen(match, 1)
            seen.update(match)
        self.assertLen(seen, 8)

    def test_values_stay_within_one_and_minus_one(self):
        record = photos.example(photos.jpeg(photos.pixels(100, 130)))
        found = augment_many("inception", record, 40, 64)
        self.assertAllInRange(found, -1.0, 1.0)
        # A wrong scale would put all values at the bounds.
        self.assertGreater(np.mean(np.abs(found) < 0.9), 0.5)

    def test_colours_change_as_plain_code_changes_them(self):
        image = photos.pixels(6, 5).astype(np.float32)
        generator = np.random.default_rng(5)
        for order in (0.2, 0.8):
            for _ in range(3):
                draws = np.array([order, *generator.random(4)], np.float32)
                found = inception.augment_colors(tf.constant(image), draws)
                expected = self.changed(image.astype(float) / 255, *draws.astype(float)) * 255
                self.assertAllClose(found, expected, atol=0.05)

    def test_colours_outside_the_range_change_as_tensorflow_changes_them(self):
        # Unclipped brightness and contrast produce such colors. A few values give many equal
        # pixels.
        image = np.random.default_rng(6).integers(-3, 17, (40, 30, 3)).astype(np.float32) * 20
        for saturation, hue in ((0.5, -0.2), (1.5, 0.2), (1.0, 0.0), (0.9, 0.06)):
            found = colors.adjust_saturation_and_hue(image, saturation, hue)
            expected = tf.image.adjust_hue(tf.image.adjust_saturation(image, saturation), hue)
            self.assertAllClose(found, expected, rtol=0, atol=5e-3)

    def changed(self, image, order, brightness, saturation, hue, contrast):
        """Computes the colors in plain Python, on images in [0, 1]."""

        def change_contrast(image):
            mean = image.mean((0, 1))
            return mean + (0.5 + contrast) * (image - mean)

        def change_color(image):
            new = np.empty_like(image)
            for place in np.ndindex(image.shape[:2]):
                h, s, v = colorsys.rgb_to_hsv(*image[place])
                s = min(max(s * (0.5 + saturation), 0), 1)
                new[place] = colorsys.hsv_to_rgb((h + 0.4 * hue - 0.2) % 1, s, v)
            return new

        image = image + (2 * brightness - 1) * 32 / 255
        if order < 0.5:
            image = change_contrast(change_color(image))
        else:
            image = change_color(change_contrast(image))
        return np.clip(image, 0, 1)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Turns records into batches of images for a network."""

from __future__ import annotations

import dataclasses

from slim_data.common.lazy import tf
from slim_data.datasets.builder import DatasetInfo
from slim_data.preprocessing.base import Preprocessing
from slim_data.tfrecord import decoding

# Random numbers are drawn for this many images.
_BLOCK = 256


@dataclasses.dataclass(frozen=True)
class Batching:
    """Makes batches of serialized tf.Examples.

    An image's random changes depend only on the seed and the image's position in the stream.

    Args:
        image_size: height and width in pixels.
        rows: (first, end) of the images kept from each batch.
        num_parallel_calls: images (or batches, if images have one size) prepared at once.
    """

    dataset: DatasetInfo
    preprocessing: Preprocessing
    image_size: int
    augments: bool
    batch_size: int
    rows: tuple[int, int]
    drop_remainder: bool
    num_parallel_calls: int

    def batches(
        self, records: tf.data.Dataset, seed: tf.Tensor, first_step: int
    ) -> tf.data.Dataset:
        """Returns a dataset of (images, labels).

        Args:
            seed: int64 scalar.
            first_step: number of the first batch in the stream.
        """
        if self.dataset.image_size is None:
            return self._of_encoded_images(records, seed, first_step)
        return self._of_one_size(records, seed, first_step)

    def _of_encoded_images(self, records, seed, first_step):
        def make_ready(position, serialized):
            encoded, label = decoding.parse_encoded_image(serialized, self.dataset)
            with tf.name_scope(decoding.SCOPE):
                return self._preprocess(encoded, lambda: tf.stack([seed, position])), label

        examples = records.enumerate(first_step * self.batch_size)
        first, end = self.rows
        if (first, end) != (0, self.batch_size):
            batches = examples.batch(self.batch_size, drop_remainder=self.drop_remainder)
            examples = batches.map(lambda *batch: [part[first:end] for part in batch]).unbatch()
        examples = examples.map(make_ready, num_parallel_calls=self.num_parallel_calls)
        return examples.batch(end - first, drop_remainder=self.drop_remainder)

    def _of_one_size(self, records, seed, first_step):
        def make_ready(step, serialized):
            images, labels = decoding.decode_examples(serialized, self.dataset)
            num_images = tf.shape(images)[0]
            position = step * self.batch_size + self.rows[0]
            images = self._preprocess(
                images, lambda: self._random_values(seed, position, num_images)
            )
            shape = [*serialized.shape, self.image_size, self.image_size, self.dataset.channels]
            return tf.ensure_shape(images, shape), labels

        first, end = self.rows
        serialized = records.batch(self.batch_size, drop_remainder=self.drop_remainder)
        if (first, end) != (0, self.batch_size):
            serialized = serialized.map(lambda batch: batch[first:end])
        return serialized.enumerate(first_step).map(
            make_ready, num_parallel_calls=self.num_parallel_calls
        )

    def _preprocess(self, images, random):
        augment = self.preprocessing.augment if self.augments else None
        if augment is None:
            return self.preprocessing.evaluate(images, self.image_size)
        return augment(images, self.image_size, random())

    def _random_values(self, seed, position, num_images):
        """Returns numbers in [0, 1) for images from a position on, [n, num_random_values]."""
        # For small images, one call per batch instead of one per image saves most of the time.
        first = position // _BLOCK
        shape = [_BLOCK, self.preprocessing.num_random_values]
        num_blocks = (self.rows[1] - self.rows[0] - 2) // _BLOCK + 2
        blocks = [
            tf.random.stateless_uniform(shape, tf.stack([seed, first + i]), alg="philox")
            for i in range(num_blocks)
        ]
        begin = position - first * _BLOCK
        return tf.concat(blocks, axis=0)[begin : begin + tf.cast(num_images, tf.int64)]

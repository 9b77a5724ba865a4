"""Images and MNIST files of any bytes yield pixels, or one line with the reason."""

import gzip
import os
import sys

import numpy as np
import pytest

from slim_data import DataError
from slim_data.datasets import mnist
from slim_data.datasets.sources import image_files
from tests.fuzz import fuzzing
from tests.slim_data import pictures, samples


class ImagesTest(fuzzing.FuzzTest):
    def test_image_files(self):
        kinds = (("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB"), ("PNG", "P"))
        kinds += (("GIF", "P"), ("WEBP", "RGB"), ("WEBP", "RGBA"), ("BMP", "L"))
        seeds = [pictures.encode(pictures.pixels(), *kind) for kind in kinds]

        def check(data):
            try:
                encoded, (height, width, channels) = image_files.as_jpeg(image_files.upright(data))
            except DataError as error:
                self.assert_clear(error, "image")
            else:
                self.assertTrue(height > 0 < width and channels == 3)
                self.assertTrue(encoded.startswith(b"\xff\xd8"))

        self.fuzz("image files", fuzzing.mutated(seeds), check)

    def test_files_of_mnist(self):
        folder = samples.new_folder(self)
        samples.write_mnist(folder, 4, 2)
        names = samples.MNIST_FILES["train"]
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                packed = file.read()

            def check(data, path=path, packed=packed):
                for content in (data, gzip.compress(data, 1)):
                    with open(path, "wb") as file:
                        file.write(content)
                    try:
                        number = mnist.Mnist(folder).num_examples("train")
                        found = list(mnist.Mnist(folder).generate_examples("train"))
                        self.assertEqual(len(found), number)
                    except DataError as error:
                        self.assert_clear(error, folder)
                with open(path, "wb") as file:
                    file.write(packed)

            seeds = [
                packed,
                gzip.decompress(packed),
                samples.idx_labels(np.array([1, 2], np.uint8)),
            ]
            self.fuzz(f"MNIST's {name}", fuzzing.mutated(seeds), check)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Data sets as tensorflow-datasets prepares and stores them, as records."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets import cifar10, mnist
from slim_data.datasets.sources import labels_file, tfds_source
from tests.slim_data import cifar10_archives, flower_photos, samples

tfds = pytest.importorskip("tensorflow_datasets")
resource = pytest.importorskip("tensorflow_datasets.core.download.resource")

# Addresses and checksums of the official files in tensorflow-datasets.
FLOWERS = (
    "http://download.tensorflow.org/example_images/flower_photos.tgz",
    "4c54ace7911aaffe13a365c34f650e71dd5bf1be0a58b464e5a7183e3e595d9c",
)
CIFAR10 = (
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)


class TfdsSourceTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.tfds_dir = samples.new_folder(self)

    def downloaded(self, url, sha256):
        """Returns the path where tensorflow-datasets looks for an already downloaded file."""
        folder = os.path.join(self.tfds_dir, "downloads")
        os.makedirs(folder)
        path = os.path.join(folder, resource.get_dl_fname(url, sha256))
        with open(f"{path}.INFO", "w", encoding="utf-8") as file:
            name = os.path.basename(url)
            json.dump({"urls": [url], "dataset_names": [], "original_fname": name}, file)
        return path

    def convert(self, name, **arguments):
        return slim_data.convert(
            name, self.folder, source="tfds", tfds_dir=self.tfds_dir, **arguments
        )

    def test_flowers_keep_their_bytes_and_get_their_own_numbers(self):
        photos = flower_photos.photos(52)
        flower_photos.write(self.downloaded(*FLOWERS), photos)
        files = self.convert("flowers", train_shards=3)
        records = {split: samples.read(paths) for split, paths in files.items()}
        self.assertEqual({s: len(r) for s, r in records.items()}, {"train": 47, "validation": 5})
        found = {r["image/encoded"]: r for r in sum(records.values(), [])}
        self.assertCountEqual(found, photos.values())
        for name, photo in photos.items():
            kind, record = name.split("/")[0], found[photo]
            self.assertEqual(record["image/class/text"].decode(), kind)
            self.assertEqual(record["image/class/label"], flower_photos.KINDS.index(kind) + 1)
            self.assertEqual(record["image/format"], b"jpg")
            size = [record[f"image/{key}"] for key in ("height", "width", "channels")]
            self.assertAllEqual(size, tf.io.decode_jpeg(photo, channels=3).shape)

    def test_cifar10_holds_the_source_exactly(self):
        batches = [cifar10_archives.batch(i) for i in range(6)]
        entries = [
            cifar10_archives.entry(name, cifar10_archives.binary_batch(*batch))
            for name, batch in zip(cifar10_archives.names("binary"), batches, strict=True)
        ]
        labels = "".join(f"{label}\n" for label in cifar10.LABELS).encode()
        entries.append(cifar10_archives.entry("cifar-10-batches-bin/batches.meta.txt", labels))
        cifar10_archives.write_archive(self.downloaded(*CIFAR10), entries)
        files = self.convert("cifar10")
        for split, part in (("train", batches[:5]), ("test", batches[5:])):
            expected = {
                np.moveaxis(image, 0, -1).tobytes(): label
                for images, labels in part
                for image, label in zip(images, labels, strict=True)
            }
            records = samples.read(files[split])
            found = {r["pixels"].tobytes(): r["image/class/label"] for r in records}
            self.assertEqual(found, expected)
            for record in records:
                text = cifar10.LABELS[record["image/class/label"]]
                self.assertEqual(record["image/class/text"].decode(), text)
        # A second call neither reads nor writes.
        self.assertEqual(self.convert("cifar10"), files)
        slim_data.verify(sum(files.values(), []), "cifar10")

    def store_mnist(self):
        """Stores random digits as tensorflow-datasets does; returns {split: (images, labels)}."""
        content = samples.write_mnist(samples.new_folder(self))
        features = tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(28, 28, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
        )
        tfds.dataset_builders.store_as_tfds_dataset(
            name="mnist",
            version=str(tfds.builder("mnist", data_dir=self.tfds_dir).version),
            data_dir=self.tfds_dir,
            features=features,
            split_datasets={
                split: tf.data.Dataset.from_tensor_slices(
                    {"image": images[..., np.newaxis], "label": labels.astype(np.int64)}
                )
                for split, (images, labels) in content.items()
            },
            download_config=tfds.download.DownloadConfig(num_shards=3),
        )
        return content

    def test_mnist_holds_the_source_exactly(self):
        content = self.store_mnist()
        files = self.convert("mnist", shard=True, train_shards=4)
        for split, (images, labels) in content.items():
            pixels = (image.tobytes() for image in images)
            expected = dict(zip(pixels, labels.tolist(), strict=True))
            records = samples.read(files[split])
            found = {r["pixels"].tobytes(): r["image/class/label"] for r in records}
            self.assertEqual(found, expected)
            for record in records:
                self.assertEqual(record["pixels"].shape, (28, 28, 1))
                text = labels_file.DIGITS[record["image/class/label"]]
                self.assertEqual(record["image/class/text"].decode(), text)

    def test_parts_of_a_split_join_to_the_whole(self):
        self.store_mnist()
        builder = tfds_source.TfdsSource(mnist.Mnist, self.tfds_dir)
        whole = list(builder.generate_examples("train"))
        self.assertLen(set(whole), builder.num_examples("train"))
        for start, stop in ((0, 23), (3, 5), (6, 17), (20, 23), (23, 23)):
            part = list(builder.generate_examples("train", start, stop))
            self.assertEqual(part, whole[start:stop])

    def test_failed_preparations_are_one_line(self):
        with open(self.downloaded(*FLOWERS), "wb") as file:
            file.write(b"no archive")
        with self.assertRaises(slim_data.DataError) as caught:
            self.convert("flowers")
        self.assertNotIn("\n", str(caught.exception))
        self.assertIn("tensorflow-datasets cannot prepare tf_flowers", str(caught.exception))
        self.assertEqual(os.listdir(self.folder), [])


class MissingPackageTest(tf.test.TestCase):
    def test_a_missing_package_is_an_error_that_names_the_extra(self):
        folder = samples.new_folder(self)
        program = (
            "import sys; sys.modules['tensorflow_datasets'] = None; import slim_data; "
            f"slim_data.convert('mnist', {folder!r}, source='tfds')"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertIn("pip install 'terngrad_tf[tfds]'", done.stderr.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

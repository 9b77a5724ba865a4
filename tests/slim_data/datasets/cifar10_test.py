"""CIFAR-10's official archive, as records and as batches."""

import gzip
import os
import pickle
import sys
import tarfile

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets import cifar10
from slim_data.input import validation
from tests.slim_data import cifar10_archives, samples

BINARY = cifar10_archives.names("binary")


class Cifar10Test(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.raw_dir = samples.new_folder(self)
        self.batches = [cifar10_archives.batch(i) for i in range(6)]
        self.write("binary")

    def write(self, version, more=(), replaced=None):
        """Writes an archive; `replaced` maps numbers of files to other members."""
        self.path = os.path.join(self.raw_dir, f"cifar-10-{version}.tar.gz")
        encode = getattr(cifar10_archives, f"{version}_batch")
        entries = [
            cifar10_archives.entry(name, encode(*batch))
            for name, batch in zip(cifar10_archives.names(version), self.batches, strict=True)
        ]
        for i, entry in (replaced or {}).items():
            entries[i] = entry
        # The official archives do not sort their files by number either.
        shuffled = [entries[i] for i in (3, 0, 1, 5, 4, 2) if entries[i] is not None]
        cifar10_archives.write_archive(self.path, [*more, *shuffled])

    def replace(self, i, data):
        name = cifar10_archives.names("binary")[i]
        self.write("binary", replaced={i: cifar10_archives.entry(name, data)})

    def convert(self):
        folder = samples.new_folder(self)
        return folder, slim_data.convert(
            "cifar10",
            folder,
            raw_dir=self.raw_dir,
            shard=True,
            train_shards=3,
            allow_other_archives=True,
        )

    def assert_refused(self, *parts):
        folder = samples.new_folder(self)
        with self.assertRaises(slim_data.DataError) as caught:
            slim_data.convert(
                "cifar10", folder, raw_dir=self.raw_dir, source="files", allow_other_archives=True
            )
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))
        self.assertEqual(os.listdir(folder), [])

    def assert_holds_the_batches(self, files):
        for split, batches in (("train", self.batches[:5]), ("test", self.batches[5:])):
            images = np.concatenate([images for images, _ in batches])
            labels = np.concatenate([labels for _, labels in batches])
            records = samples.read(files[split])
            self.assertLen(records, len(labels))
            for record, image, label in zip(records, images, labels, strict=True):
                self.assertAllEqual(record["pixels"], np.moveaxis(image, 0, -1))
                self.assertEqual(record["image/class/label"], label)
                self.assertEqual(record["image/class/text"].decode(), cifar10.LABELS[label])
                self.assertEqual(record["image/channels"], 3)

    def test_records_hold_the_source_exactly_in_the_order_of_the_batches(self):
        folder, files = self.convert()
        self.assert_holds_the_batches(files)
        found = validation.validate("cifar10", folder)
        self.assertEqual([sum(c.values()) for c in found["train"].values()], [6, 7, 7])

    def test_both_versions_give_the_same_files(self):
        folder, _ = self.convert()
        os.remove(self.path)
        self.write("python")
        other, files = self.convert()
        self.assert_holds_the_batches(files)
        shards = {n: b for n, b in samples.contents(folder).items() if not n.startswith(".")}
        others = samples.contents(other)
        self.assertEqual({name: others[name] for name in shards}, shards)

    def test_the_python_version_is_preferred(self):
        self.write("python")
        os.truncate(os.path.join(self.raw_dir, "cifar-10-binary.tar.gz"), 10)
        self.assert_holds_the_batches(self.convert()[1])

    def test_pickles_as_python_3_writes_them_are_read(self):
        images, labels = self.batches[0]
        for protocol, key in ((2, str.encode), (3, str), (4, str)):
            values = {key("data"): images.reshape(4, -1), key("labels"): labels.tolist()}
            data = pickle.dumps(values, protocol=protocol)
            name = cifar10_archives.names("python")[0]
            self.write("python", replaced={0: cifar10_archives.entry(name, data)})
            self.assert_holds_the_batches(self.convert()[1])

    def test_any_part_of_a_split_can_be_read(self):
        for version in ("binary", "python"):
            self.write(version)
            builder = cifar10.Cifar10(self.raw_dir)
            whole = list(builder.generate_examples("train"))
            self.assertLen(whole, builder.num_examples("train"))
            for start, stop in ((0, 20), (3, 5), (4, 12), (7, 20), (20, 20)):
                part = list(builder.generate_examples("train", start, stop))
                self.assertEqual(part, whole[start:stop])

    def test_nothing_is_extracted(self):
        outside = os.path.join(self.raw_dir, "outside")
        self.write(
            "binary",
            more=[
                cifar10_archives.entry("../outside", b"x"),
                cifar10_archives.entry(outside, b"x"),
                cifar10_archives.entry("link", kind=tarfile.SYMTYPE, target="/etc/passwd"),
                cifar10_archives.entry("device", kind=tarfile.CHRTYPE),
            ],
        )
        self.assert_holds_the_batches(self.convert()[1])
        self.assertEqual(os.listdir(self.raw_dir), ["cifar-10-binary.tar.gz"])

    def test_links_in_place_of_files_are_refused(self):
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            link = cifar10_archives.entry(BINARY[1], kind=kind, target="/etc/passwd")
            self.write("binary", replaced={1: link})
            self.assert_refused(self.path, BINARY[1], "not a regular file")

    def test_missing_files_are_named(self):
        self.write("binary", replaced={5: None})
        self.assert_refused(self.path, "lacks", BINARY[5])
        os.remove(self.path)
        self.assert_refused("`raw_dir`", "cifar-10-python.tar.gz or cifar-10-binary", self.raw_dir)

    def test_wrong_sizes_and_labels_are_named(self):
        images, labels = self.batches[2]
        self.replace(2, b"")
        self.assert_refused(BINARY[2], "Received: 0")
        self.replace(2, cifar10_archives.binary_batch(images, labels)[:-1])
        self.assert_refused(BINARY[2], "3073", "Received: 12291")
        self.replace(2, cifar10_archives.binary_batch(images, np.array([0, 1, 10, 2])))
        self.assert_refused(BINARY[2], "record 2", "label is not 0 to 9: 10")

    def test_pickles_of_other_values_are_refused(self):
        images, labels = self.batches[0]
        images = images.reshape(4, -1)
        values = {"data": images, "labels": labels.tolist()}
        for more, part in (
            ({"data": images[:, :3071].copy()}, "`data` must be an array of shape (images, 3072)"),
            ({"data": images[0].copy()}, "Received: (3072,)"),
            ({"data": images.tobytes()}, "Received: bytes"),
            ({"data": images.astype(np.int16)}, "an array that is not contiguous uint8"),
            ({"data": images[:3].copy()}, "4 labels for 3 images"),
            ({"labels": labels.tobytes()}, "`labels` must be a list of integers"),
            ({"labels": [1, 2, True, 3]}, "`labels` must be a list of integers"),
            ({"labels": [1, 2, -1, 3]}, "record 2 (counted from 0): label is not 0 to 9: -1"),
            ({"labels": [1, 2, 2**63, 3]}, f"label is not 0 to 9: {2**63}"),
        ):
            data = pickle.dumps({**values, **more}, protocol=2)
            name = cifar10_archives.names("python")[0]
            self.write("python", replaced={0: cifar10_archives.entry(name, data)})
            self.assert_refused(self.path, name, part)

    def test_damaged_archives_are_refused(self):
        with open(self.path, "rb") as file:
            whole = file.read()
        flipped = whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:]
        for data in (whole[:-9], whole[: len(whole) // 2], flipped, b"", b"no archive"):
            with open(self.path, "wb") as file:
                file.write(data)
            self.assert_refused(self.path)
        with open(self.path, "wb") as file:
            file.write(gzip.compress(b"no archive"))
        self.assert_refused(self.path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

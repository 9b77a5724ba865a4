"""Lists of labels, classes, names and boxes, and XML annotations, of any bytes."""

import json
import os
import re
import sys
import tempfile

import pytest
from hypothesis import strategies as st

from slim_data import DataError
from slim_data.datasets.imagenet import bounding_boxes, devkit, preparation, records
from slim_data.datasets.sources import image_folders, labels_file
from slim_data.files import archives
from slim_data.tfrecord import writing
from tests.fuzz import fuzzing
from tests.slim_data import ilsvrc, pictures, samples


class ListsTest(fuzzing.FuzzTest):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.path = os.path.join(self.folder, "file")

    def assert_refused_or(self, function, *arguments):
        """Calls a function; returns None if it raises a clear error of one line."""
        try:
            return function(*arguments)
        except DataError as error:
            self.assert_clear(error, self.path)

    def fuzz_file(self, what, seeds, check):
        """Runs a check with damaged contents of the file `self.path`."""

        def written(data):
            with open(self.path, "wb") as file:
                file.write(data)
            check()

        self.fuzz(what, st.one_of(fuzzing.mutated(seeds), st.binary(max_size=40)), written)

    def test_labels(self):
        def check():
            for label in self.assert_refused_or(image_folders.read_labels, self.path) or ():
                self.assertEqual(os.path.basename(label), label)
                self.assertNotIn(label, ("", ".", ".."))
                self.assertNotIn("\0", label)

        self.fuzz_file("files of labels", [b"roses\ndaisy\r\n\ntulips", "\u00fc\n".encode()], check)

    def test_names_beside_records(self):
        self.path = os.path.join(self.folder, labels_file.NAME)
        seeds = [b"0:daisy\n1:tulip tree\n2:rose\n", b"daisy\nrose\r\ntulip\n\n"]
        seeds += ["7:r\u00f6schen\n8:a:b\n".encode(), b"\xef\xbb\xbf1:a\n2:b\n"]

        def check():
            found = self.assert_refused_or(labels_file.read_labels, "folder", self.folder)
            if found is None:
                return
            names, first = found
            with open(self.path, encoding="utf-8") as file:
                lines = [line.strip(" \t\n") for line in file]
            self.assertTrue(all(name.isprintable() for name in names))
            self.assertEqual(len(set(names)), len(names))
            pairs = [re.fullmatch(r"([0-9]+):(.+)", line) for line in lines if line]
            if all(pairs):
                numbers = [int(pair[1]) for pair in pairs]
                self.assertEqual(numbers, list(range(first, first + len(names))))
                self.assertEqual([pair[2] for pair in pairs], list(names))
                return
            # Without numbers, each line is a class name, and no line has a number.
            self.assertEqual((first, lines[: len(names)]), (1, list(names)))
            self.assertFalse(any(lines[len(names) :]))
            self.assertFalse(any(re.match(r"\d+:", line) for line in lines))

        self.fuzz_file("files of names beside records", seeds, check)

    def test_wordnet_ids(self):
        raw = os.path.join(self.folder, preparation.RAW)
        os.mkdir(raw)
        self.path = os.path.join(raw, preparation.SYNSETS)

        def check():
            read = preparation.read_wordnet_ids
            for name in self.assert_refused_or(read, self.path) or ():
                self.assertRegex(name, r"\An[0-9]{8}\Z")

        self.fuzz_file("lists of WordNet ids", ["\n".join(ilsvrc.SYNSETS).encode()], check)

    def test_names_of_classes(self):
        text = "".join(f"{s}\t{n}\n" for s, n in pictures.SYNSETS.items())

        def check():
            self.assert_refused_or(records.read_names, self.path, ilsvrc.SYNSETS)

        self.fuzz_file("ImageNet's metadata files", [text.encode()], check)

    def test_lists_of_boxes(self):
        def check():
            found = self.assert_refused_or(bounding_boxes.read_boxes, self.path) or {}
            for xmin, ymin, xmax, ymax in (box for boxes in found.values() for box in boxes):
                self.assertTrue(0 <= xmin < xmax <= 1 and 0 <= ymin < ymax <= 1)

        seed = b'a.JPEG,0.1,0.2,0.3,0.4\n"b, c.JPEG",0,0,1,1\na.JPEG,0,0.5,1,1.0e0\n'
        self.fuzz_file("CSV files of boxes", [seed], check)

    def test_annotations(self):
        boxes = [("dog", 50, 100, 10, 20), ("n01440764", 0, 0, 100, 200)]
        text = pictures.annotation(boxes).decode()
        declared = f'<?xml version="1.0" encoding="utf-16"?><!DOCTYPE a [<!ENTITY b "b">]>{text}'
        seeds = [text.encode(), text.encode("utf-16"), declared.encode("utf-16")]

        def check(data):
            try:
                found = bounding_boxes.from_xml(data)
            except DataError as error:
                self.assert_clear(error, "annotation")
            else:
                for box in found:
                    self.assertTrue(0 <= box.xmin < box.xmax <= 1 and 0 <= box.ymin < box.ymax <= 1)

        self.fuzz("annotations in XML", fuzzing.mutated(seeds), check)

    def test_records_of_conversions(self):
        path = os.path.join(self.folder, "train-00000-of-00001")
        self.path = os.path.join(self.folder, ".train.conversion.json")
        seeds = [json.dumps({"dataset": "mnist", "a": [1, None, "x"]}, indent=1).encode()]

        def check():
            found = self.assert_refused_or(writing.known_fingerprint, [path])
            self.assertIsInstance(found or {}, dict)

        self.fuzz_file("records of conversions", [*seeds, b"[" * 10**5], check)

    def test_lists_of_classes_in_the_devkit(self):
        files = {}
        with tempfile.TemporaryDirectory() as folder:
            pictures.write(os.path.join(folder, "x"), ilsvrc.devkit())
            with archives.open_archive(os.path.join(folder, "x")) as archive:
                for name, member in archives.list_members(archive).items():
                    files[name] = archives.read_member(archive, member, 2**20)

        def check(data, name):
            with open(self.path, "wb") as file:
                file.write(pictures.tar({**files, name: data}, "gz"))
            found = self.assert_refused_or(devkit.read_devkit, self.path)
            if found is not None:
                for synset in (*found.names, *found.validation):
                    self.assertRegex(synset, r"\An[0-9]{8}\Z")

        for name, what in (("meta.mat", "classes"), ("ground_truth.txt", "validation labels")):
            (place,) = [file for file in files if file.endswith(name)]
            self.fuzz(
                f"ImageNet's devkit: {what}",
                fuzzing.mutated([files[place]]),
                lambda data, place=place: check(data, place),
                num_cases=3,  # each starts a process
            )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Bounding boxes from XML annotations to CSV lines and back."""

import sys

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import slim_data
from slim_data.datasets.imagenet import bounding_boxes
from tests.slim_data import pictures, samples

SETTINGS = hypothesis.settings(deadline=None, max_examples=100, derandomize=True)
PIXELS = st.integers(-50, 400)


class BoundingBoxesTest(tf.test.TestCase):
    def corners(self, *boxes, size=(100, 200)):
        found = bounding_boxes.from_xml(pictures.annotation(boxes, size))
        return [tuple(box[1:]) for box in found]

    def test_boxes_are_scaled_by_the_annotated_size(self):
        self.assertEqual(self.corners(("x", 10, 20, 50, 200)), [(0.1, 0.1, 0.5, 1.0)])

    def test_reversed_corners_are_swapped(self):
        self.assertEqual(self.corners(("x", 50, 200, 10, 20)), [(0.1, 0.1, 0.5, 1.0)])

    def test_boxes_are_clipped_to_the_image(self):
        self.assertEqual(self.corners(("x", -7, -1, 130, 260)), [(0.0, 0.0, 1.0, 1.0)])

    def test_boxes_without_an_area_are_left_out(self):
        boxes = [("x", 5, 5, 5, 90), ("x", 5, 9, 90, 9), ("x", 150, 0, 180, 50)]
        self.assertEqual(self.corners(*boxes, ("x", 0, 0, 50, 100)), [(0.0, 0.0, 0.5, 0.5)])

    @SETTINGS
    @hypothesis.given(st.lists(st.tuples(PIXELS, PIXELS, PIXELS, PIXELS), max_size=4))
    def test_boxes_equal_a_slow_count_of_pixels(self, boxes):
        width, height = 100, 200
        expected = []
        for x0, y0, x1, y1 in boxes:
            # Pixels inside the image and between the corners, in either order.
            columns = [x for x in range(width) if min(x0, x1) <= x < max(x0, x1)]
            rows = [y for y in range(height) if min(y0, y1) <= y < max(y0, y1)]
            if columns and rows:
                ends = columns[0] / width, rows[0] / height
                expected.append((*ends, (columns[-1] + 1) / width, (rows[-1] + 1) / height))
        self.assertAllClose(self.corners(*[("x", *box) for box in boxes]), expected)

    def test_boxes_of_another_known_class_are_left_out(self):
        names = ("n01440764", "n02099601", "Scottish_deerhound", "n09999999")
        data = pictures.annotation([(name, 0, 0, 10, 10) for name in names])
        boxes = bounding_boxes.from_xml(data)
        kept = bounding_boxes.of_class(boxes, "n01440764", pictures.SYNSETS)
        names = [box.label for box in kept]
        self.assertEqual(names, ["n01440764", "Scottish_deerhound", "n09999999"])

    def test_files_other_than_annotations_are_refused(self):
        declared = (
            '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bb">]><annotation>&b;</annotation>'
        )
        bomb = b'<!DOCTYPE a [<!ENTITY b "bb">]><annotation>&b;</annotation>'
        box = pictures.annotation([("x", 1, 2, 3, 4)])
        for data, part in (
            (bomb, "document type"),
            *(
                (declared.encode(name), "document type")
                for name in ("utf-16", "utf-16le", "utf-16be")
            ),
            (declared.replace("?>", " encoding='utf-16'?>").encode("utf-16"), "document type"),
            (b"\xef\xbb\xbf" + declared.encode(), "document type"),
            (declared.replace("?>", " encoding='nobody-knows'?>").encode(), "not an annotation"),
            (declared.replace("?>", " encoding='utf-7'?>").encode("utf-7"), "not an annotation"),
            (declared.replace("?>", " encoding='rot13'?>").encode(), "not an annotation"),
            (b"<a>" * 300_000, "not an annotation"),
            (b"<a>" * 100_000 + b"</a>" * 100_000, "not an annotation"),
            (b"", "not an annotation"),
            (box[:-9], "not an annotation"),
            (box.replace(b"<width>100</width>", b""), "not an annotation"),
            (box.replace(b"100", b"0"), "not an annotation"),
            (box.replace(b"<xmin>1</xmin>", b"<xmin>one</xmin>"), "not an annotation"),
        ):
            with self.assertRaisesRegex(slim_data.DataError, part) as caught:
                bounding_boxes.from_xml(data)
            self.assertNotIn("\n", str(caught.exception))

    def test_lines_are_read_back(self):
        path = f"{samples.new_folder(self)}/boxes.csv"
        boxes = bounding_boxes.from_xml(
            pictures.annotation([("x", 10, 20, 50, 200), ("x", 33, 0, 99, 100)])
        )
        lines = bounding_boxes.lines("a_1.JPEG", boxes) + bounding_boxes.lines(
            "b_2.JPEG", boxes[:1]
        )
        self.assertEqual(lines[0], "a_1.JPEG,0.1000,0.1000,0.5000,1.0000")
        pictures.write(path, "\n".join([*lines, "b_2.JPEG,0.1,0.2,0.1,0.9"]))
        first, second = (0.1, 0.1, 0.5, 1.0), (0.33, 0.0, 0.99, 0.5)
        expected = {"a_1.JPEG": [first, second], "b_2.JPEG": [first]}
        self.assertEqual(bounding_boxes.read_boxes(path), expected)
        wanted = bounding_boxes.read_boxes(path, {"b_2.JPEG", "c_3.JPEG"})
        self.assertEqual(wanted, {"b_2.JPEG": [first]})

    def test_wrong_lines_are_named(self):
        path = f"{samples.new_folder(self)}/boxes.csv"
        for line in (
            "a.JPEG,0,0,1",
            "a.JPEG,0,0,1,x",
            "a.JPEG,0,0,1,2",
            "a,.5,0,.2,1",
            "",
            "a,0,0,1,nan",
        ):
            pictures.write(path, f"a.JPEG,0,0,1,1\n{line}\nb.JPEG,0,0,1,1\n")
            with self.assertRaisesRegex(slim_data.DataError, f"{path}: line 2 must be"):
                bounding_boxes.read_boxes(path)
        with self.assertRaisesRegex(slim_data.DataError, "No such file"):
            bounding_boxes.read_boxes(f"{path}x")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

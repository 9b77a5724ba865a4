"""ImageNet's bounding boxes: from XML annotations to a CSV file, and on to the records.

A line of the CSV file is `n00007846_147031.JPEG,0.0060,0.2620,0.7545,0.9940`: image, xmin, ymin,
xmax and ymax, relative to its size.
"""

import csv
from collections.abc import Container, Iterable
from typing import NamedTuple

from slim_data.common.errors import DataError, os_errors_of
from slim_data.common.extras import import_extra
from slim_data.files import opening


class Box(NamedTuple):
    """A box and the name of its object; coordinates are relative to the image's size."""

    label: str
    xmin: float
    ymin: float
    xmax: float
    ymax: float


def from_xml(data: bytes) -> list[Box]:
    """Returns the boxes of one annotation.

    Coordinates are divided by the size that the annotation states, which may not be the image's.
    Reversed corners are swapped, boxes are clipped, and empty boxes are dropped.

    Args:
        data: XML with `size` (`width`, `height`) and, for each `object`, `name` and `bndbox`
            (`xmin`, `ymin`, `xmax`, `ymax` in pixels).
    """
    defusedxml, tree = import_extra("defusedxml"), import_extra("defusedxml.ElementTree")
    try:
        # A document type could declare entities of unlimited size.
        root = tree.fromstring(data, forbid_dtd=True)
        width, height = (float(root.findtext(f"size/{side}")) for side in ("width", "height"))
        boxes = [_scaled(box, width, height) for box in root.iter("object")]
    except defusedxml.DefusedXmlException:
        raise DataError("an annotation must not declare a document type") from None
    except (
        tree.ParseError,
        LookupError,  # an unknown encoding
        TypeError,
        ValueError,
        ZeroDivisionError,
    ) as error:
        raise DataError(f"it is not an annotation with size and boxes ({error})") from None
    return [box for box in boxes if box.xmin < box.xmax and box.ymin < box.ymax]


def _scaled(annotated, width, height):
    corners = []
    for axis, size in (("x", width), ("y", height)):
        ends = [float(annotated.findtext(f"bndbox/{axis}{end}")) / size for end in ("min", "max")]
        corners.append(sorted(min(max(end, 0.0), 1.0) for end in ends))
    (xmin, xmax), (ymin, ymax) = corners
    return Box(annotated.findtext("name") or "", xmin, ymin, xmax, ymax)


def of_class(boxes: Iterable[Box], synset: str, synsets: Container[str]) -> list[Box]:
    """Returns the boxes without those labelled as another known class.

    Dogs are often labelled with a breed instead of a WordNet id: unknown labels count as the
    image's class.
    """
    return [box for box in boxes if box.label == synset or box.label not in synsets]


def lines(image: str, boxes: Iterable[Box]) -> list[str]:
    """Returns the lines of the CSV file for the boxes of one image."""
    return [f"{image},{b.xmin:.4f},{b.ymin:.4f},{b.xmax:.4f},{b.ymax:.4f}" for b in boxes]


def read_boxes(
    path: str, images: Container[str] | None = None
) -> dict[str, list[tuple[float, ...]]]:
    """Returns {image: boxes (xmin, ymin, xmax, ymax)} from a CSV file, without empty boxes.

    Args:
        images: images to read boxes of; default: all.
    """
    found = {}
    argument = f"`bounding_box_file` {path}"
    try:
        with (
            os_errors_of(argument),
            open(path, encoding="utf-8", newline="", opener=opening.regular_file) as file,
        ):
            for number, row in enumerate(csv.reader(file), 1):
                box = _parsed(row)
                if box is None:
                    raise DataError(
                        f"{path}: line {number} must be `name,xmin,ymin,xmax,ymax` with values "
                        f"of 0 to 1. Received: {','.join(row)!r}"
                    )
                # Rounding to four decimals can empty narrow boxes.
                has_area = box[0] < box[2] and box[1] < box[3]
                if has_area and (images is None or row[0] in images):
                    found.setdefault(row[0], []).append(box)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{argument} must be a CSV file ({error})") from None
    return found


def _parsed(row):
    try:
        _, *values = row
        xmin, ymin, xmax, ymax = box = tuple(map(float, values))
    except ValueError:
        return None
    return box if 0 <= xmin <= xmax <= 1 and 0 <= ymin <= ymax <= 1 else None

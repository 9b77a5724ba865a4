"""A tiny ImageNet in the layout of the official archives, and its records."""

import io
import os

import numpy as np
import tensorflow as tf
from scipy import io as scipy_io

from tests.slim_data import pictures

SYNSETS = list(pictures.SYNSETS)
TRAIN = "ILSVRC2012_img_train.tar"
VALIDATION = "ILSVRC2012_img_val.tar"
ANNOTATIONS = "ILSVRC2012_bbox_train_v2.tar.gz"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
# The devkit numbers classes in a different order, followed by groups of classes.
NUMBERS = {1: SYNSETS[2], 2: SYNSETS[0], 3: SYNSETS[1], 4: "n00000001"}
VALIDATION_CLASSES = [SYNSETS[i] for i in (1, 0, 2, 1, 1, 0, 2)]


def train_images(num_per_class=4):
    """Returns {synset: {name: bytes}}, including a PNG, a CMYK and a grey image."""
    makes = (("JPEG", "RGB"), ("PNG", "RGB"), ("JPEG", "CMYK"), ("JPEG", "L"))
    return {
        synset: {
            f"{synset}_{7 * j + 1}.JPEG": pictures.encode(
                pictures.pixels(40 + j, 30 + i, seed=10 * i + j), *makes[j % 4]
            )
            for j in range(num_per_class)
        }
        for i, synset in enumerate(SYNSETS)
    }


def train_archive(images):
    """Returns the archive that holds one archive a class."""
    return pictures.tar({f"{s}.tar": pictures.tar(files) for s, files in images.items()})


def validation_images():
    """Returns {name: bytes} of the validation images."""
    count = len(VALIDATION_CLASSES)
    return {
        f"ILSVRC2012_val_{i:08d}.JPEG": pictures.encode(pictures.pixels(seed=100 + i))
        for i in range(1, count + 1)
    }


def devkit(numbers=None, truth=None):
    """Returns the devkit's archive."""
    fields = [(n, object) for n in ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")]
    synsets = np.zeros((len(NUMBERS), 1), fields)
    for i, (number, synset) in enumerate((numbers or NUMBERS).items()):
        words = pictures.SYNSETS.get(synset, "group")
        synsets[i, 0] = (number, synset, words, "what it is", 0 if number < 4 else 3)
    meta = io.BytesIO()
    scipy_io.savemat(meta, {"synsets": synsets})
    number_of = {synset: number for number, synset in NUMBERS.items()}
    truth = truth or [number_of[synset] for synset in VALIDATION_CLASSES]
    folder = "ILSVRC2012_devkit_t12/data"
    return pictures.tar(
        {
            "ILSVRC2012_devkit_t12/readme.txt": b"about",
            f"{folder}/meta.mat": meta.getvalue(),
            f"{folder}/ILSVRC2012_validation_ground_truth.txt": "".join(
                f"{number}\n" for number in truth
            ).encode(),
        },
        "gz",
    )


def annotations():
    """Returns (archive of XML annotations, lines of the CSV file)."""
    first, second, third = SYNSETS
    files = {
        f"{second}/{second}_8.xml": [("dog", 50, 100, 10, 20), (second, 0, 0, 100, 200)],
        f"{first}/{first}_1.xml": [(first, 10, 20, 50, 100), (third, 0, 0, 9, 9)],
        "n09999999/n09999999_5.xml": [("n09999999", 0, 0, 9, 9)],
    }
    lines = [
        f"{first}_1.JPEG,0.1000,0.1000,0.5000,0.5000\n",
        f"{second}_8.JPEG,0.0000,0.0000,1.0000,1.0000\n",
        f"{second}_8.JPEG,0.1000,0.1000,0.5000,0.5000\n",
    ]
    archive = {name: pictures.annotation(boxes) for name, boxes in files.items()}
    return pictures.tar(archive, "gz"), lines


def write(folder):
    """Writes the four archives to a folder."""
    for name, data in (
        (TRAIN, train_archive(train_images())),
        (VALIDATION, pictures.tar(validation_images())),
        (ANNOTATIONS, annotations()[0]),
        (DEVKIT, devkit()),
    ):
        pictures.write(os.path.join(folder, name), data)


def tree(folder):
    """Returns {path relative to the folder: bytes} of all its files, including hidden ones."""
    found = {}
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def parse(record):
    """Returns the fields of an ImageNet record, by key."""
    corners = ("xmin", "xmax", "ymin", "ymax")
    parsed = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/format": tf.io.FixedLenFeature([], tf.string),
            "image/filename": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
            "image/class/synset": tf.io.FixedLenFeature([], tf.string),
            "image/class/text": tf.io.FixedLenFeature([], tf.string),
            "image/height": tf.io.FixedLenFeature([], tf.int64),
            "image/width": tf.io.FixedLenFeature([], tf.int64),
            "image/channels": tf.io.FixedLenFeature([], tf.int64),
            "image/colorspace": tf.io.FixedLenFeature([], tf.string),
            "image/object/bbox/label": tf.io.VarLenFeature(tf.int64),
            **{f"image/object/bbox/{c}": tf.io.VarLenFeature(tf.float32) for c in corners},
        },
    )
    return {k: v.values if isinstance(v, tf.SparseTensor) else v for k, v in parsed.items()}

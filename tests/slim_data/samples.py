"""Sources and records for the tests, made and read without the code under test."""

import contextlib
import gzip
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

MNIST_FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}


def new_folder(test):
    """Returns the path of an empty folder that the test removes."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return folder.name


@contextlib.contextmanager
def small_disk(test, kibibytes):
    """Yields a folder on its own file system; skips the test if none can be mounted."""
    folder = new_folder(test)
    size = f"size={kibibytes}k"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        test.skipTest("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def idx_images(images, magic=2051):
    """Returns an idx file with uint8 images [n, height, width], as bytes."""
    return struct.pack(">4I", magic, *images.shape) + images.tobytes()


def idx_labels(labels, magic=2049):
    """Returns an idx file with uint8 labels [n], as bytes."""
    return struct.pack(">2I", magic, len(labels)) + labels.tobytes()


def write_mnist(folder, num_train=23, num_test=7, seed=0):
    """Writes the four official files with random images; returns {split: (images, labels)}."""
    os.makedirs(folder, exist_ok=True)
    generator = np.random.default_rng(seed)
    content = {}
    for split, size in (("train", num_train), ("test", num_test)):
        images = generator.integers(0, 256, (size, 28, 28), np.uint8)
        labels = generator.integers(0, 10, size).astype(np.uint8)
        files = (idx_images(images), idx_labels(labels))
        for name, data in zip(MNIST_FILES[split], files, strict=True):
            with gzip.open(os.path.join(folder, name), "wb", compresslevel=1) as file:
                file.write(data)
        content[split] = images, labels
    return content


def example(encoded, label, **more):
    """Returns a serialized tf.Example with an image and its class; None leaves a key out."""
    feature = {key: tf.train.Feature(bytes_list={"value": [value]}) for key, value in more.items()}
    if encoded is not None:
        feature["image/encoded"] = tf.train.Feature(bytes_list={"value": [encoded]})
    if label is not None:
        feature["image/class/label"] = tf.train.Feature(int64_list={"value": [label]})
    return tf.train.Example(features={"feature": feature}).SerializeToString()


def png(value=0, size=28):
    """Returns a grey PNG of a single brightness."""
    return tf.io.encode_png(np.full((size, size, 1), value, np.uint8)).numpy()


def write_records(path, records):
    """Writes a TFRecord file."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def write_numbered(folder, sizes, split="train"):
    """Writes shards of MNIST-like records whose brightness counts up over all shards."""
    os.makedirs(folder, exist_ok=True)
    number = 0
    for i, size in enumerate(sizes):
        records = [example(png(number + k), (number + k) % 10) for k in range(size)]
        write_records(os.path.join(folder, f"{split}-{i:05d}-of-{len(sizes):05d}"), records)
        number += size


def brightness(images):
    """Returns the numbers that `write_numbered` encoded in a batch of images in [-1, 1]."""
    return np.rint((np.asarray(images)[:, 0, 0, 0] + 1) / 2 * 255).astype(int).tolist()


def read(files):
    """Returns the parsed records of TFRecord files as dictionaries of NumPy values."""
    keys = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/format": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/class/text": tf.io.FixedLenFeature([], tf.string),
        "image/height": tf.io.FixedLenFeature([], tf.int64),
        "image/width": tf.io.FixedLenFeature([], tf.int64),
        "image/channels": tf.io.FixedLenFeature([], tf.int64),
        "image/colorspace": tf.io.FixedLenFeature([], tf.string),
    }
    for corner in ("xmin", "xmax", "ymin", "ymax"):
        keys[f"image/object/bbox/{corner}"] = tf.io.VarLenFeature(tf.float32)

    def parse(record):
        parsed = tf.io.parse_single_example(record, keys)
        for key, value in parsed.items():
            parsed[key] = value.values if isinstance(value, tf.SparseTensor) else value
        return {**parsed, "pixels": tf.io.decode_png(parsed["image/encoded"])}

    return list(tf.data.TFRecordDataset(list(files)).map(parse).as_numpy_iterator())


def contents(folder):
    """Returns {name: bytes} of the files in a folder, including hidden ones."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def record_offsets(path):
    """Returns the offset of each record of a TFRecord file."""
    with open(path, "rb") as file:
        data = file.read()
    offsets = [0]
    while offsets[-1] < len(data):
        (length,) = struct.unpack_from("<Q", data, offsets[-1])
        offsets.append(offsets[-1] + 16 + length)
    return offsets[:-1]


def flip_bit(path, offset):
    """Flips the lowest bit of one byte of a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def converter(*arguments):
    """Returns the command line of the converter."""
    return [sys.executable, "-m", "slim_data.download_and_convert_data", *map(str, arguments)]


def run_converter(*arguments):
    """Runs the converter; returns the completed process, with text output."""
    return run("slim_data.download_and_convert_data", *arguments)


def run(module, *arguments, folder=None):
    """Runs a program in `folder`; returns the completed process, with text output."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )

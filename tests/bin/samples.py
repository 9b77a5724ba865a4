"""Small, learnable data sets in the official formats, and helpers that run programs."""

import colorsys
import contextlib
import gzip
import io
import os
import struct
import sys
import tarfile

import numpy as np
import tensorflow as tf

MNIST_FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}
CIFAR10_FILES = {
    "train": [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)],
    "test": ["cifar-10-batches-bin/test_batch.bin"],
}


def command(module, *arguments):
    """Returns the command line of a program."""
    return [sys.executable, "-m", f"terngrad_tf.bin.{module}", *map(str, arguments)]


def call(main, *arguments):
    """Runs a program in this process; returns exit status, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(map(str, arguments)))
    return status, out.getvalue(), err.getvalue()


def images(labels, height, width, num_classes):
    """Returns noisy uint8 images [n, height, width, 3] with one color a class."""
    colors = 255 * np.array(
        [colorsys.hsv_to_rgb(k / num_classes, 0.9, 0.9) for k in range(num_classes)]
    )
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 20, (len(labels), height, width, 3))
    return np.clip(colors[labels][:, None, None, :] + noise, 0, 255).astype(np.uint8)


def write_mnist(folder, sizes):
    """Writes the four official files; images of higher classes are brighter.

    Args:
        folder: path, created if missing.
        sizes: {split: number of images}.
    """
    os.makedirs(folder, exist_ok=True)
    for split, size in sizes.items():
        labels = np.arange(size, dtype=np.uint8) % 10
        pixels = np.repeat(25 * labels, 28 * 28).astype(np.uint8)
        contents = (
            struct.pack(">4I", 2051, size, 28, 28) + pixels.tobytes(),
            struct.pack(">2I", 2049, size) + labels.tobytes(),
        )
        for name, content in zip(MNIST_FILES[split], contents, strict=True):
            with gzip.open(os.path.join(folder, name), "wb") as file:
                file.write(content)


def write_cifar10(folder, size):
    """Writes the official binary archive with `size` images in each file."""
    os.makedirs(folder, exist_ok=True)
    labels = np.arange(size) % 10
    planes = images(labels, 32, 32, 10).transpose(0, 3, 1, 2).reshape(size, -1)
    content = np.concatenate([labels[:, None], planes], axis=1).astype(np.uint8).tobytes()
    with tarfile.open(os.path.join(folder, "cifar-10-binary.tar.gz"), "w:gz") as archive:
        for name in [name for names in CIFAR10_FILES.values() for name in names]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_photos(folder, sizes, num_classes=5):
    """Writes TFRecords of JPEGs with classes from 1 on, like those of ImageNet and flowers.

    Args:
        folder: path, created if missing.
        sizes: {split: number of images}; each split has two shards.
        num_classes: number of classes. Default 5.
    """
    os.makedirs(folder, exist_ok=True)
    for split, size in sizes.items():
        labels = np.arange(size) % num_classes
        photos = images(labels, 48, 60, num_classes)
        for shard in range(2):
            path = os.path.join(folder, f"{split}-{shard:05d}-of-00002")
            with tf.io.TFRecordWriter(path) as writer:
                for photo, label in zip(photos[shard::2], labels[shard::2], strict=True):
                    writer.write(_example(photo, label + 1))


def _example(photo, label):
    def integer(value):
        return tf.train.Feature(int64_list={"value": [value]})

    def text(value):
        return tf.train.Feature(bytes_list={"value": [value]})

    height, width, channels = photo.shape
    feature = {
        "image/encoded": text(tf.io.encode_jpeg(photo, quality=95).numpy()),
        "image/format": text(b"JPEG"),
        "image/class/label": integer(label),
        "image/class/text": text(b"flower"),
        "image/class/synset": text(b"n00000000"),
        "image/colorspace": text(b"RGB"),
        "image/filename": text(b"flower.JPEG"),
        "image/height": integer(height),
        "image/width": integer(width),
        "image/channels": integer(channels),
    }
    return tf.train.Example(features={"feature": feature}).SerializeToString()

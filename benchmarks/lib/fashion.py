"""Fashion-MNIST, or other files in MNIST's format, for benchmarks."""

import itertools

import numpy as np

import slim_data


def load(raw_dir, num_examples):
    """Reads the first training images, at most 60,000, and all 10,000 test images.

    Args:
        raw_dir: folder with the four official archives.

    Returns:
        {"train": (images, labels), "test": ...}: float32 [n, 28, 28, 1] in [-1, 1], int32 [n].
    """
    builder = slim_data.find_builder("fashion_mnist")(raw_dir)
    found = {}
    for split, count in (("train", num_examples), ("test", None)):
        examples = itertools.islice(builder.generate_images(split), count)
        images, labels = zip(*examples, strict=True)
        found[split] = (np.stack(images) / 127.5 - 1).astype("float32"), np.array(labels, "int32")
    return found


def convert(raw_dir, data_dir, train_shards=None):
    """Writes the images of a folder with four archives in MNIST's format as TFRecords."""
    sharded = {"shard": True, "train_shards": train_shards} if train_shards else {}
    slim_data.convert(
        *("mnist", data_dir),
        source="files",
        raw_dir=raw_dir,
        allow_other_archives=True,
        **sharded,
    )

"""The flower photos' archive with other photos, in the original layout."""

import os
import tarfile

import numpy as np
import tensorflow as tf

from tests.slim_data.cifar10_archives import entry, write_archive

KINDS = ("daisy", "dandelion", "roses", "sunflowers", "tulips")


def photo(generator):
    """Returns a JPEG file of random size and pixels; some are grey."""
    size = generator.integers(5, 20, 2)
    channels = generator.choice([1, 3], p=[0.1, 0.9])
    pixels = generator.integers(0, 256, (*size, channels), np.uint8)
    return tf.io.encode_jpeg(pixels).numpy()


def photos(number, seed=0):
    """Returns {kind/name: JPEG file} of `number` photos."""
    generator = np.random.default_rng(seed)
    names = [f"{KINDS[i % 5]}/{10**6 + 7919 * i}_{i:010x}_n.jpg" for i in range(number)]
    return {name: photo(generator) for name in names}


def write(path, content, more=()):
    """Writes the archive; `more` holds further entries."""
    entries = [entry("flower_photos", kind=tarfile.DIRTYPE)]
    entries += [entry(f"flower_photos/{name}", data) for name, data in content.items()]
    write_archive(path, [*entries, *more])


def visible(folder):
    """Returns the names of the files in a folder that are not hidden."""
    return [name for name in os.listdir(folder) if not name.startswith(".")]

"""CIFAR-10's two official archives with other images, otherwise identical byte by byte."""

import io
import struct
import tarfile

import numpy as np

FOLDERS = {"python": "cifar-10-batches-py", "binary": "cifar-10-batches-bin"}
BATCHES = [f"data_batch_{i}" for i in (3, 1, 2, 5, 4)] + ["test_batch"]


def names(version):
    """Returns the names of the six files, training first, in order."""
    ending = {"python": "", "binary": ".bin"}[version]
    return [f"{FOLDERS[version]}/{name}{ending}" for name in sorted(BATCHES)]


def batch(seed, size=4):
    """Returns (images [n, 3, 32, 32], labels [n]) with random values."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (size, 3, 32, 32), np.uint8)
    return images, generator.integers(0, 10, size).astype(np.uint8)


def binary_batch(images, labels):
    """Returns a file of the binary version."""
    rows = zip(labels, images, strict=True)
    return b"".join(bytes([label]) + image.tobytes() for label, image in rows)


def python_batch(images, labels):
    """Returns a file of the Python version: a pickle as Python 2 and NumPy 1 write it."""
    label_list = b"".join(b"K" + bytes([label]) for label in labels)
    filenames = b"".join(python2_string(b"image_%d.png" % i) for i in range(len(labels)))
    return (
        b"\x80\x02}q\x01("
        + python2_string(b"batch_label")
        + python2_string(b"training batch 1 of 5")
        + python2_string(b"labels")
        + b"]q\x04("
        + label_list
        + b"e"
        + python2_string(b"data")
        + python2_array(images.reshape(len(images), -1))
        + python2_string(b"filenames")
        + b"]q\x0d("
        + filenames
        + b"eu."
    )


def python2_string(data):
    """Returns the opcodes of a Python 2 `str`, including its memo entry."""
    if len(data) < 256:
        return b"U" + bytes([len(data)]) + data + b"r\x40\x00\x00\x00"
    return b"T" + struct.pack("<i", len(data)) + data


def python2_array(array, kind=b"u1"):
    """Returns the opcodes of a contiguous NumPy 1 array."""
    shape = b"".join(b"J" + struct.pack("<i", size) for size in array.shape)
    return (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x0a"
        + b"(K\x01("
        + shape
        + b"tcnumpy\ndtype\nq\x0b"
        + python2_string(kind)
        + b"K\x00K\x01\x87Rq\x0c(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + python2_string(array.tobytes())
        + b"tb"
    )


def entry(name, data=b"", kind=tarfile.REGTYPE, target=""):
    """Returns (header, content) of an archive member."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, target
    return info, data


def write_archive(path, entries):
    """Writes a .tar.gz of results of `entry`."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))

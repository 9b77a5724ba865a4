"""Image files of all formats, written with Pillow, and folders, archives and annotations."""

import io
import os
import tarfile

import numpy as np
from PIL import Image

SYNSETS = {"n01440764": "tench, Tinca tinca", "n02099601": "dog", "n02974003": "cab, hack"}


def pixels(width=40, height=32, seed=0):
    """Returns a smooth coloured picture, uint8 [height, width, 3]."""
    generator = np.random.default_rng(seed)
    small = Image.fromarray(generator.integers(0, 256, (4, 5, 3), np.uint8))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def encode(array, kind="JPEG", mode="RGB"):
    """Returns an image file of `kind` with the colours of `mode`, such as "CMYK" or "L"."""
    file = io.BytesIO()
    options = {"quality": 95} if kind == "JPEG" else {}
    Image.fromarray(array).convert(mode).save(file, kind, **options)
    return file.getvalue()


def decode(data):
    """Returns the pixels of an image file as Pillow decodes them, int64 [height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(np.int64)


def squeeze(array, side):
    """Returns an image resized to a square by Pillow, int64 [side, side, 3]."""
    image = Image.fromarray(array.astype(np.uint8))
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)).astype(np.int64)


def write(path, data):
    """Writes a file, and creates its folder."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def tar(files, compression=""):
    """Returns an archive of {name: bytes, or a `TarInfo` for other members}."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{compression}") as archive:
        for name, data in files.items():
            if isinstance(data, tarfile.TarInfo):
                archive.addfile(data)
                continue
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def annotation(boxes, size=(100, 200), filename="%s"):
    """Returns an XML annotation of boxes (name, xmin, ymin, xmax, ymax) and a (width, height)."""
    objects = "".join(
        f"<object><name>{name}</name><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin>"
        f"<xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>"
        for name, x0, y0, x1, y1 in boxes
    )
    return (
        f"<annotation><filename>{filename}</filename><size><width>{size[0]}</width>"
        f"<height>{size[1]}</height><depth>3</depth></size>{objects}</annotation>"
    ).encode()

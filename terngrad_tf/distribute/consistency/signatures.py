"""Finds out whether processes' batches hold the same examples, without sending them."""

import collections
import contextlib
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Most compared rows and components.
_MAX_ROWS = 32
_MAX_COMPONENTS = 8
# Bytes at a file's end that count, and the longest file name.
_TAIL, _MAX_NAME = 64, 1000
# Processors round preprocessing differently.
_TOLERANCE = 1e-4
# Equal rows prove equal examples if they are unlikely by chance, unlike few classes.
_TELLING_BITS = 20.0


def signature_of_batch(batch: Any) -> list[Any]:
    """Returns a few numbers that distinguish a batch from others.

    For each component the kind, the number of rows, and a number for each of the first rows. Small
    changes of floats change their numbers little; the numbers of file names depend on the contents.

    Example:
    >>> signature_of_batch((np.zeros([2, 3]), np.array([1, 2], np.int64)))
    [['float', 2, [0.0, 0.0]], ['int64', 2, [2844319735, 654825492]]]
    """
    return [_signature_of(np.atleast_1d(component)) for component in _components(batch)]


def signature_of_elements(elements: Iterable[Any]) -> list[Any]:
    """Like `signature_of_batch`, for single elements: structures of arrays or tensors."""
    columns = zip(*map(_components, elements), strict=True)
    return [_signature_of(column) for column in columns]


def are_alike(signatures: Sequence[list[Any]], are_distorted: bool = True) -> bool:
    """Returns True if batches, given by their signatures, hold the same examples.

    If images may be distorted at random, one equal component that distinguishes examples, such as
    labels, suffices.
    """
    first = signatures[0]
    if any(_kinds(other) != _kinds(first) for other in signatures[1:]):
        return False
    components = list(zip(*signatures, strict=True))
    equal = [parts for parts in components if all(_is_close(part, parts[0]) for part in parts)]
    telling = [part for part, *_ in equal if _bits(part) >= _TELLING_BITS]
    return len(equal) == len(components) or (are_distorted and bool(telling))


def _components(batch):
    flat = tf.nest.flatten(batch, expand_composites=True)
    return [np.asarray(c) for c in flat[:_MAX_COMPONENTS] if c is not None]


def _signature_of(rows):
    first = [np.asarray(row) for row in rows[:_MAX_ROWS]]
    kind = _kind(first[0].dtype) if first else ""
    number_of = {"float": _projection, "text": _checksum_of_text}.get(kind, _checksum)
    return [kind, len(rows), [number_of(row) for row in first]]


def _kind(dtype):
    if dtype.kind in "OSU":
        return "text"
    return "float" if "float" in dtype.name else dtype.name


def _projection(row):
    weights = np.random.default_rng(0).uniform(-1, 1, row.size)
    return float(row.astype(np.float64).ravel() @ weights)


def _checksum(row):
    return zlib.crc32(row.tobytes())


def _checksum_of_text(row):
    return zlib.crc32(b"\0".join(map(_content, row.ravel().tolist())))


def _content(text):
    """Returns a text; for a file's name, which may differ by copy, the file's size and end."""
    content = text if isinstance(text, bytes) else str(text).encode()
    if len(content) < _MAX_NAME:
        with contextlib.suppress(tf.errors.OpError, UnicodeError, ValueError):
            size = tf.io.gfile.stat(content.decode()).length
            with tf.io.gfile.GFile(content.decode(), "rb") as file:
                file.seek(max(0, size - _TAIL))
                return b"%d %s" % (size, file.read())
    return content


def _kinds(signature):
    return [part[:2] for part in signature]


def _is_close(part, other):
    (kind, _, values), (_, _, others) = part, other
    if kind != "float":
        return values == others
    size = np.max(np.abs(np.nan_to_num(others, posinf=0.0, neginf=0.0)), initial=0.0)
    return np.allclose(values, others, rtol=0, atol=_TOLERANCE * size, equal_nan=True)


def _bits(part):
    """Returns the information in the order of a component's rows, in bits: count times entropy."""
    values = part[2]
    counts = collections.Counter(values).values()
    return sum(-count * math.log2(count / len(values)) for count in counts)

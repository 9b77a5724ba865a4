"""Parses JSON from untrusted files and environments. Imports no TensorFlow."""

import collections
import json
import math
import os
from typing import Any

from terngrad_tf.common.files import open_regular

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 32
MAX_DIGITS = 30
_TOLD = 40
_TOO_DEEP = f"arrays and objects stand in one another more than {MAX_DEPTH} deep"


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file in UTF-8; see `parse_json`.

    Raises:
        ValueError: the file is not regular, or its content is refused.
    """
    with open_regular(path) as file:
        return parse_json(file.read(MAX_BYTES + 1))


def parse_json(text: str | bytes) -> Any:
    """Parses JSON as defined by RFC 8259, with numbers that Python can hold.

    Raises:
        ValueError: the text is longer than 16 MiB, not UTF-8 or not JSON; arrays and objects are
            nested more than 32 deep; an integer has more than 30 digits; a number is too large; an
            object repeats a key; or text holds half of a surrogate pair.

    Example:
        >>> parse_json('{"rho": 0.5}')
        {'rho': 0.5}
        >>> parse_json('{"rho": 1, "rho": 2}')
        Traceback (most recent call last):
        ...
        ValueError: `rho` is given twice in one object
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"it is not UTF-8: byte {error.start}") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except (RecursionError, MemoryError) as error:
        raise ValueError(_TOO_DEEP) from error
    _check(value)
    return value


def _check(value):
    """Raises ValueError for values nested too deep, and for text that is not Unicode."""
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        inner = []
        for outer in level:
            if isinstance(outer, str):
                _check_text(outer)
            elif depth == MAX_DEPTH and isinstance(outer, (list, dict)):
                raise ValueError(_TOO_DEEP)
            elif isinstance(outer, list):
                inner += outer
            elif isinstance(outer, dict):
                inner += [*outer, *outer.values()]
        level = inner


def _check_text(text):
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"text is not Unicode: {text[:_TOLD]!r}") from error


def _object(pairs):
    if len(pairs) != len(found := dict(pairs)):
        counts = collections.Counter(key for key, _ in pairs)
        raise ValueError(f"`{counts.most_common(1)[0][0]}` is given twice in one object")
    return found


def _integer(digits):
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"an integer has more than {MAX_DIGITS} digits: {digits[:_TOLD]}...")
    return int(digits)


def _float(text):
    if not math.isfinite(value := float(text)):
        raise ValueError(f"a number is too large: {text[:_TOLD]}")
    return value


def _constant(name):
    raise ValueError(f"{name} is not a number")

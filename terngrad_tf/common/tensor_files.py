"""Safetensors files with metadata, written atomically, and their headers."""

import os
import pathlib
import re
import struct
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from terngrad_tf.common import strict_json
from terngrad_tf.common.files import atomic_write, open_regular

_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")


def write_tensors(
    path: pathlib.Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]
) -> None:
    """Writes contiguous arrays to a safetensors file atomically, without `fsync`.

    Reading refuses a file truncated by a power cut: its size does not match its header. So keep
    an earlier one that is on the disk; see `files.sync`.
    """
    with atomic_write(path) as beside:
        # The library makes files private; keep the usual mode.
        mode = beside.stat().st_mode
        try:
            safetensors.numpy.save_file(tensors, beside, metadata)
        except safetensors.SafetensorError as error:
            number = _SYSTEM_ERROR.search(str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        beside.chmod(mode)


def read_header(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Reads a safetensors file's header, checked by the library.

    Returns:
        {name: {"dtype", "shape", "offset": position of the first byte}}, and the metadata.

    Raises:
        ValueError: the file is damaged.
    """
    with open_regular(path) as file:
        try:
            with safetensors.safe_open(path, "numpy") as opened:
                metadata = opened.metadata() or {}
            (length,) = struct.unpack("<Q", file.read(8))
            header = strict_json.parse_json(file.read(min(length, strict_json.MAX_BYTES + 1)))
        except (safetensors.SafetensorError, struct.error, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error
    header.pop("__metadata__", None)
    for entry in header.values():
        entry["offset"] = 8 + length + entry.pop("data_offsets")[0]
    return header, metadata

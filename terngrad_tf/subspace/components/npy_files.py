"""Matrices in NumPy's `.npy` format, from untrusted files."""

import math
import os
import pathlib
import tokenize
import warnings

import numpy as np

from terngrad_tf.common.arguments import shown
from terngrad_tf.common.files import open_regular

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# Errors of Python's parser, with which NumPy reads the header.
_PARSER_ERRORS = (
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
    MemoryError,
    TypeError,
    OverflowError,
)


def map_matrix(path: pathlib.Path) -> np.ndarray:
    """Maps a matrix of floats [rows, columns] into memory.

    Copies float64 as float32, and numbers of another byte order in the machine's own.

    Reads numbers only, never a pickle.

    Raises:
        ValueError: the file does not hold such a matrix.
    """
    try:
        matrix = _map(path)
    except (ValueError, *_PARSER_ERRORS) as error:
        raise ValueError(f"{path} is not a matrix in .npy format: {error}") from error
    dtype = matrix.dtype.newbyteorder("=")
    with np.errstate(over="ignore", invalid="ignore"):  # overflows are refused later
        return matrix.astype(np.float32 if dtype == np.float64 else dtype, copy=False)


def _map(path):
    with open_regular(path) as file:
        read_header = _HEADERS.get(np.lib.format.read_magic(file))
        if read_header is None:
            raise ValueError("its version is neither 1.0 nor 2.0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers of Python 2, and odd literals
            shape, is_fortran, dtype = read_header(file)
        if dtype.kind != "f":
            raise ValueError(
                f"it must be in one of float32, float16, float64. Received: {shown(str(dtype))}"
            )
        if len(shape) != 2 or min(shape) < 1:
            raise ValueError(
                f"it must be a matrix with fewer rows than columns. Received: shape={shown(shape)}"
            )
        size = file.tell() + math.prod(shape) * dtype.itemsize
        if os.fstat(file.fileno()).st_size < size:
            raise ValueError(f"it ends before the {shown(shape)} numbers of its header")
        order = "F" if is_fortran else "C"
        return np.memmap(file, dtype, "r", offset=file.tell(), shape=shape, order=order)

"""Files of subspaces: `.safetensors` with everything, `.npy` with only the matrix."""

import json
import pathlib
import typing
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.common import strict_json, tensor_files
from terngrad_tf.common.arguments import is_integer, shown
from terngrad_tf.common.files import atomic_write
from terngrad_tf.subspace.components import npy_files

if typing.TYPE_CHECKING:
    from terngrad_tf.subspace.components.subspace import Subspace

_FORMAT = "terngrad_tf.subspace"
_ARRAYS = ("components", "mean", "explained_variance", "explained_variance_ratio")
_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "U16": np.uint16}
_STORED = {"float32": "F32", "float16": "F16", "bfloat16": "U16"}


def read_subspace(path: pathlib.Path) -> dict[str, Any]:
    """Returns a `Subspace`'s arguments without its path; arrays are mapped from the file.

    Raises:
        ValueError: the file is damaged or of another kind.
    """
    _check_suffix(path)
    if path.suffix == ".npy":
        return {"components": npy_files.map_matrix(path)}
    header, metadata = tensor_files.read_header(path)
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"{path} does not hold a subspace (see Subspace.save)")
    try:
        dtype, layout = metadata["dtype"], _layout(metadata["layout"])
        _check_arrays(header, dtype)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    arrays: dict[str, Any] = {
        name: np.memmap(
            path, _DTYPES[entry["dtype"]], "r", offset=entry["offset"], shape=tuple(entry["shape"])
        )
        for name, entry in header.items()
    }
    arrays["components"] = arrays["components"].view(tf.as_dtype(dtype).as_numpy_dtype)
    return arrays if layout is None else {**arrays, "layout": layout}


def _layout(text):
    layout = strict_json.parse_json(text)
    if layout is None:
        return None
    if not isinstance(layout, list) or not all(map(_is_entry, layout)):
        raise ValueError("its layout is not a list of names and shapes")
    return tuple((name, tuple(shape)) for name, shape in layout)


def _is_entry(entry):
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
        return False
    return isinstance(entry[1], list) and all(is_integer(length, 0) for length in entry[1])


def _check_arrays(header, dtype):
    """Raises ValueError unless a file's tensors are those of `write_subspace`."""
    if dtype not in _STORED:
        raise ValueError(f"components must be in one of {', '.join(_STORED)}, not {shown(dtype)}")
    shape = header["components"]["shape"]
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"components must be a matrix. Received: shape={shown(shape)}")
    rows, columns = shape
    expected = {
        "components": (_STORED[dtype], [rows, columns]),
        "mean": ("F32", [columns]),
        "explained_variance": ("F64", [rows]),
        "explained_variance_ratio": ("F64", [rows]),
    }
    for name, entry in header.items():
        received = entry["dtype"], entry["shape"]
        if received != expected.get(name):
            raise ValueError(f"it holds {shown(name)} as {received[0]} of {shown(received[1])}")


def write_subspace(path: pathlib.Path, subspace: "Subspace") -> None:
    """Writes a subspace atomically; see `Subspace.save`."""
    _check_suffix(path)
    dtype = subspace.components.dtype.name
    if path.suffix == ".npy" and dtype != "float32":
        raise ValueError(
            f"`path` must end in .safetensors for components in {dtype}. Received: path={path}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        with atomic_write(path) as beside, open(beside, "wb") as file:
            np.save(file, subspace.components, allow_pickle=False)
        return
    arrays = {name: getattr(subspace, name) for name in _ARRAYS}
    if dtype == "bfloat16":
        # Some releases of the library refuse bfloat16 from NumPy.
        arrays["components"] = arrays["components"].view(np.uint16)
    tensor_files.write_tensors(
        path,
        {name: np.ascontiguousarray(a) for name, a in arrays.items() if a is not None},
        {"format": _FORMAT, "dtype": dtype, "layout": json.dumps(subspace.layout)},
    )


def _check_suffix(path):
    if path.suffix not in (".npy", ".safetensors"):
        raise ValueError(f"`path` must end in .npy or .safetensors. Received: path={path}")

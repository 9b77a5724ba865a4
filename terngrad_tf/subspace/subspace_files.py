"""Files of subspaces: `.safetensors` with everything, `.npy` with the matrix alone."""

import json
import os

import numpy as np
import tensorflow as tf

from terngrad_tf.subspace import snapshot_files

_FORMAT = "terngrad_tf.subspace"
_ARRAYS = ("components", "mean", "explained_variance", "explained_variance_ratio")
_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "U16": np.uint16}


def read(path):
    """Arguments of a `Subspace` but its path; arrays are mapped from the file.

    Args:
        path: `pathlib.Path`.

    Raises:
        ValueError: the file is damaged or of another kind.
        FileNotFoundError: there is no such file.
    """
    _check_suffix(path)
    if path.suffix == ".npy":
        try:
            matrix = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} is not a matrix in .npy format: {error}") from error
        is_double = matrix.dtype == np.float64
        return {"components": matrix.astype(np.float32) if is_double else matrix}
    header, metadata = snapshot_files.read_header(path)
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"{path} does not hold a subspace (see Subspace.save)")
    arrays = {
        name: np.memmap(
            path, _DTYPES[entry["dtype"]], "r", offset=entry["offset"], shape=tuple(entry["shape"])
        )
        for name, entry in header.items()
    }
    arrays["components"] = arrays["components"].view(tf.as_dtype(metadata["dtype"]).as_numpy_dtype)
    layout = json.loads(metadata["layout"])
    if layout is not None:
        arrays["layout"] = tuple((name, tuple(shape)) for name, shape in layout)
    return arrays


def write(path, subspace):
    """Writes a subspace beside its place and renames it.

    Args:
        path: `pathlib.Path`.
        subspace: `Subspace`.

    Raises:
        ValueError: another ending than `.safetensors` or `.npy`, or `.npy` for components that are
            not float32.
    """
    _check_suffix(path)
    dtype = subspace.components.dtype.name
    if path.suffix == ".npy" and dtype != "float32":
        raise ValueError(
            f"`path` must end in .safetensors for components in {dtype}. Received: path={path}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(beside, "wb") as file:
                np.save(file, subspace.components, allow_pickle=False)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        return
    arrays = {name: getattr(subspace, name) for name in _ARRAYS}
    if dtype == "bfloat16":
        # Releases of the library differ in whether they take NumPy arrays of bfloat16.
        arrays["components"] = arrays["components"].view(np.uint16)
    snapshot_files.write_tensors(
        path,
        {name: np.ascontiguousarray(a) for name, a in arrays.items() if a is not None},
        {"format": _FORMAT, "dtype": dtype, "layout": json.dumps(subspace.layout)},
    )


def _check_suffix(path):
    if path.suffix not in (".npy", ".safetensors"):
        raise ValueError(f"`path` must end in .npy or .safetensors. Received: path={path}")

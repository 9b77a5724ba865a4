"""Weight snapshots: one safetensors file each, float32, named by the step.

The metadata holds the order of the weights, which safetensors does not keep.
"""

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Iterable

import keras
import numpy as np
import safetensors.numpy

from terngrad_tf.common import strict_json, tensor_files
from terngrad_tf.common.arguments import check_integer, shown
from terngrad_tf.common.files import PathLike
from terngrad_tf.subspace.weights import variables as weights

_FORMAT = "terngrad_tf.snapshot"
_NAME = re.compile(r"snapshot-(\d{10,})\.safetensors")


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A snapshot file, without its weights.

    Args:
        step: number of optimizer steps.
        layout: (name, shape) in the order of the model's trainable weights.
        offsets: position of each tensor's first byte in the file.
    """

    path: pathlib.Path
    step: int
    layout: tuple[tuple[str, tuple[int, ...]], ...]
    offsets: tuple[int, ...]

    def read_range(self, start: int, out: np.ndarray) -> None:
        """Fills a contiguous float32 array with consecutive weights, counted over all tensors in
        order.
        """
        # The library slices only rows, and a convolution has only three.
        done = first = 0
        with open(self.path, "rb") as file:
            for (_, shape), offset in zip(self.layout, self.offsets, strict=True):
                size = int(np.prod(shape))
                skip = start + done - first
                count = min(size - skip, out.size - done)
                if 0 <= skip < size and count > 0:
                    file.seek(offset + 4 * skip)
                    if file.readinto(out[done : done + count].data.cast("B")) != 4 * count:
                        raise ValueError(f"{self.path} changed while it was read")
                    done += count
                first += size

    def read(self) -> list[np.ndarray]:
        """Returns all weights as float32 arrays in the order of `layout`."""
        tensors = safetensors.numpy.load_file(self.path)
        return [tensors[name] for name, _ in self.layout]


def file_name(step: int) -> str:
    """Returns the file name of a step: `snapshot-0000000120.safetensors`."""
    return f"snapshot-{step:010d}.safetensors"


def step_of(path: PathLike) -> int | None:
    """Returns the step in a snapshot's file name; None for other names."""
    match = _NAME.fullmatch(os.path.basename(path))
    return int(match.group(1)) if match else None


def find_snapshots(directory: PathLike) -> list[pathlib.Path]:
    """Returns the snapshots in a directory in the order of their steps."""
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        return []
    steps = {path: step_of(path) for path in directory.iterdir()}
    found = {path: step for path, step in steps.items() if step is not None}
    return sorted(found, key=found.__getitem__)


def save_snapshot(model: keras.Model, directory: PathLike, step: int) -> pathlib.Path:
    """Writes a model's trainable weights as `directory/snapshot-<step>.safetensors`.

    Args:
        model: `keras.Model` with trainable weights.
        directory: path of a folder, created if missing.
        step: number of optimizer steps, at least 0. A file of the same step is replaced.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: the step is out of range, or the model is not built.

    Example:
        >>> save_snapshot(model, directory, 0).name
        'snapshot-0000000000.safetensors'
    """
    check_integer("step", step, 0)
    if not model.trainable_variables:
        raise ValueError("`model` must be built and hold trainable weights. Received: none")
    layout = weights.layout_of(model.trainable_variables)
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / file_name(step)
    tensors = {
        # NumPy's `ascontiguousarray` would give scalars an axis.
        name: np.asarray(variable.numpy(), np.float32, order="C")
        for (name, _), variable in zip(layout, model.trainable_variables, strict=True)
    }
    if len(tensors) != len(layout):
        raise ValueError("`model` must give each of its weights another path. Received: equal ones")
    names = json.dumps([name for name, _ in layout])
    tensor_files.write_tensors(
        path, tensors, {"format": _FORMAT, "step": str(step), "names": names}
    )
    return path


def open_snapshot(path: PathLike) -> Snapshot:
    """Reads and checks a snapshot's header.

    Raises:
        ValueError: the file is damaged or not a snapshot.
    """
    path = pathlib.Path(path)
    header, metadata = tensor_files.read_header(path)
    try:
        if metadata["format"] != _FORMAT:
            raise ValueError("another format")
        names = strict_json.parse_json(metadata["names"])
        if not re.fullmatch("[0-9]{1,18}", metadata["step"]):
            raise ValueError(f"its step is {shown(metadata['step'])}")
        if not isinstance(names, list) or sorted(names) != sorted(header):
            raise ValueError("names and tensors differ")
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a weight snapshot: {error}") from error
    entries = [header[name] for name in names]
    for name, entry in zip(names, entries, strict=True):
        if entry["dtype"] != "F32":
            raise ValueError(
                f"{path} must hold float32 weights. Received: {shown(name)} {entry['dtype']}"
            )
    layout = tuple(zip(names, (tuple(e["shape"]) for e in entries), strict=True))
    return Snapshot(path, int(metadata["step"]), layout, tuple(e["offset"] for e in entries))


def open_snapshots(snapshots: PathLike | Iterable[PathLike]) -> list[Snapshot]:
    """Reads the headers of a folder of `SnapshotCheckpoint`, in the order of steps, or of a list of
    files.

    Raises:
        ValueError: a file is damaged, or names or shapes differ.
    """
    if isinstance(snapshots, str | os.PathLike):
        if not os.path.isdir(snapshots):
            raise FileNotFoundError(
                "`snapshots` must be a folder of snapshots or a list of files. "
                f"Received: {snapshots}"
            )
        snapshots = find_snapshots(snapshots)
    opened = [open_snapshot(path) for path in snapshots]
    for snapshot in opened[1:]:
        weights.check_same_layout(
            opened[0].layout, snapshot.layout, str(opened[0].path), str(snapshot.path)
        )
    return opened


def restore_snapshot(model: keras.Model, path: PathLike) -> int:
    """Sets a model's trainable weights to a snapshot's.

    Args:
        model: built `keras.Model` with the snapshot's weights.
        path: file written by `save_snapshot` or `SnapshotCheckpoint`.

    Returns:
        The snapshot's step.

    Raises:
        ValueError: the file is damaged, or names or shapes do not match the model.
        FileNotFoundError: the file does not exist.

    Example:
        >>> restore_snapshot(model, save_snapshot(model, directory, 7))
        7
    """
    snapshot = open_snapshot(path)
    layout = weights.layout_of(model.trainable_variables)
    weights.check_same_layout(layout, snapshot.layout, "the model", str(snapshot.path))
    for variable, value in zip(model.trainable_variables, snapshot.read(), strict=True):
        variable.assign(value)
    return snapshot.step

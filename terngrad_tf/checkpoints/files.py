"""Checkpoint files: one safetensors file per step, named by the step, with a checksum."""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from terngrad_tf.common import strict_json
from terngrad_tf.common.arguments import is_integer
from terngrad_tf.common.files import PathLike, open_regular, sync
from terngrad_tf.common.tensor_files import read_header, write_tensors

_FORMAT = "terngrad_tf.checkpoint"
_NAME = re.compile(r"checkpoint-(\d{10,18})\.safetensors")
_UNFINISHED = re.compile(r"\.checkpoint-\d{10,18}\.safetensors\.[0-9a-f]{16}")
# Headers of files have a limit, too.
_MOST_OF_MODEL = 2**21
# Integers in which safetensors' NumPy interface stores other dtypes.
_STORED = {1: np.uint8, 2: np.uint16}


@dataclasses.dataclass(frozen=True)
class Position:
    """Progress of training, in batches and completed epochs.

    Attributes:
        batch: batches of the current epoch.
        batches_of_epoch: batches of the first completed epoch, if any: in data of unknown length,
            Keras reads at most one step more in later ones.
        steps: batches of an epoch, if `fit` knows them.
        first_epoch: epoch with which training began; None before.
        steps_per_execution: batches that are trained on at once. None in older files.
    """

    step: int
    epoch: int = 0
    batch: int = 0
    batches_of_epoch: int | None = None
    steps: int | None = None
    first_epoch: int | None = 0
    steps_per_execution: int | None = None


@dataclasses.dataclass(frozen=True)
class Description:
    """The metadata of a checkpoint.

    Attributes:
        paths: paths of the variables by the keys of their arrays.
        logs: logs of the epoch that ended with the checkpoint.
        checksum: SHA-256; "" before it is written.
        model: description of the model's layers by values that JSON can hold, or None if it is not
            known.
        trained: for each optimizer the keys of the weights that it trains, None for unknown ones;
            None in place of the list if it is not built. None in older files.
    """

    path: pathlib.Path
    position: Position
    paths: dict[str, str]
    logs: dict[str, float]
    checksum: str = ""
    model: Any = None
    trained: list[list[str | None] | None] | None = None


def find(folder: PathLike) -> list[pathlib.Path]:
    """Returns the checkpoints in a folder, oldest first; ignores other files."""
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def path_of(folder: PathLike, step: int) -> pathlib.Path:
    """Returns a step's path: `checkpoint-0000000400.safetensors`."""
    return pathlib.Path(folder) / f"checkpoint-{step:010d}.safetensors"


def write(description: Description, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by key to a temporary file, and renames it to the description's path."""
    stored = {key: _as_stored(array) for key, array in arrays.items()}
    layout = [[key, description.paths[key], array.dtype.name] for key, array in arrays.items()]
    metadata = {
        "format": _FORMAT,
        "position": json.dumps(dataclasses.asdict(description.position)),
        "layout": json.dumps(layout),
        "logs": json.dumps(description.logs),
    }
    model = json.dumps(description.model)
    if description.model is not None and len(model) <= _MOST_OF_MODEL:
        metadata["model"] = model
    if description.trained is not None:
        metadata["trained"] = json.dumps(description.trained)
    metadata["sha256"] = _checksum(stored, metadata)
    write_tensors(description.path, stored, metadata)


def describe(path: pathlib.Path) -> Description:
    """Reads a checkpoint's description, without its arrays; raises ValueError if damaged."""
    _, metadata = read_header(path)
    return _description(path, metadata)


def read(path: pathlib.Path) -> tuple[Description, dict[str, np.ndarray], bytes]:
    """Returns a checkpoint's description, its arrays by key, and the content of the file.

    Raises:
        ValueError: the file is damaged, or not a checkpoint.
    """
    with open_regular(path) as file:
        content = file.read()
    return *parse(path, content), content


def parse(path: pathlib.Path, content: bytes) -> tuple[Description, dict[str, np.ndarray]]:
    """Returns the description and the arrays in the content of a file; as `read`."""
    try:
        stored = safetensors.numpy.load(content)
        metadata = _metadata(content)
    except (safetensors.SafetensorError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    except KeyError as error:  # a dtype that NumPy lacks
        raise _no_checkpoint(path, f"it holds arrays of {error}") from error
    description = _description(path, metadata)
    if _checksum(stored, metadata) != description.checksum:
        raise ValueError(f"{path} is damaged: its checksum is not that of its content")
    if stored.keys() != description.paths.keys():
        raise ValueError(f"{path} is damaged: it holds other arrays than it says")
    return description, {key: stored[key].view(dtype) for key, _, dtype in _layout(metadata)}


def remove_all_but(folder: PathLike, kept: Sequence[pathlib.Path]) -> None:
    """Removes the other checkpoints of a folder.

    The first of `kept` is on the disk before; a power cut may damage those that are not. By then,
    the system has mostly written it.
    """
    others = [path for path in find(folder) if path not in kept]
    if others and kept:
        # Processes may share the folder and remove the same files.
        with contextlib.suppress(FileNotFoundError):
            sync(kept[0])
    for path in others:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def unfinished(folder: PathLike) -> dict[pathlib.Path, tuple[int, int]]:
    """Returns size and time of the half-written files in a folder, of live or killed processes."""
    found = {}
    for path in pathlib.Path(folder).iterdir():
        if _UNFINISHED.fullmatch(path.name):
            with contextlib.suppress(OSError):
                status = path.stat()
                found[path] = (status.st_size, status.st_mtime_ns)
    return found


def _description(path, metadata):
    try:
        if metadata.get("format") != _FORMAT:
            raise ValueError("it has another format")
        position = Position(**strict_json.parse_json(metadata["position"]))
        known = position.step, position.epoch, position.batch, position.first_epoch
        if not all(map(_is_count, dataclasses.astuple(position))) or None in known:
            raise ValueError(f"its position is {position}")
        logs = strict_json.parse_json(metadata["logs"])
        return Description(
            path,
            position,
            {key: name for key, name, _ in _layout(metadata)},
            {str(name): float(value) for name, value in logs.items()},
            metadata["sha256"],
            _model(metadata),
            _trained(metadata),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise _no_checkpoint(path, why) from error


def _no_checkpoint(path, why):
    return ValueError(f"{path} is no checkpoint of `terngrad_tf.Checkpoint`: {why}")


def _layout(metadata):
    """Returns (key, path of the variable, dtype) of each array."""
    layout = strict_json.parse_json(metadata["layout"])
    return [(str(k), str(path), tf.as_dtype(str(d)).as_numpy_dtype) for k, path, d in layout]


def _model(metadata):
    """Returns the model's description; None if the file is older, or JSON cannot hold it."""
    with contextlib.suppress(ValueError):
        return strict_json.parse_json(metadata.get("model", "null"))
    return None


def _trained(metadata):
    trained = strict_json.parse_json(metadata.get("trained", "null"))
    if trained is None:
        return None
    return [keys if keys is None else [k and str(k) for k in keys] for keys in trained]


def _is_count(value):
    return value is None or is_integer(value, 0)


def _metadata(content):
    length = int.from_bytes(content[:8], "little")
    metadata = strict_json.parse_json(content[8 : 8 + length]).get("__metadata__", {})
    return {name: metadata[name] for name in sorted(metadata)}


def _checksum(stored, metadata):
    digest = hashlib.sha256()
    for name in sorted(set(metadata) - {"sha256"}):
        digest.update(f"{name}={metadata[name]}\n".encode())
    for key in sorted(stored):
        digest.update(f"{key} {stored[key].shape}\n".encode())
        digest.update(np.ascontiguousarray(stored[key]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _as_stored(array):
    array = np.ascontiguousarray(array).reshape(array.shape)
    is_plain = array.dtype.kind in "biuf"
    return array if is_plain else array.view(_STORED[array.dtype.itemsize])

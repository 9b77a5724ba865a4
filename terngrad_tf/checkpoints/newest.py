"""Finds the newest checkpoint of one process, or of all processes of a cluster."""

import contextlib
import logging
import pathlib
from typing import Any

import numpy as np

from terngrad_tf.checkpoints import files
from terngrad_tf.checkpoints.files import Description
from terngrad_tf.distribute import TernGradStrategy, run_on_all
from terngrad_tf.distribute.consistency.broadcast import broadcast_bytes

_logger = logging.getLogger(__name__)

_Found = tuple[Description, dict[str, np.ndarray]]


def newest_of(folder: pathlib.Path) -> tuple[Description, dict[str, np.ndarray], bytes] | None:
    """Returns the newest intact checkpoint, or None.

    Raises:
        ValueError: all checkpoints are damaged.
    """
    damaged = []
    for path in reversed(files.find(folder)):
        try:
            found = files.read(path)
        except ValueError as error:
            damaged.append(str(error))
            continue
        for line in damaged:
            _logger.warning("%s; going on from %s", line, path)
        return found
    if damaged:
        raise ValueError(f"{damaged[0]}; no other checkpoint is there: name another folder")
    return None


def newest_beside(path: pathlib.Path) -> pathlib.Path | None:
    """Returns the newest other checkpoint in a checkpoint's folder that is intact, or None."""
    for other in reversed(files.find(path.parent)):
        with contextlib.suppress(ValueError, OSError):
            if other != path:
                files.read(other)
                return other
    return None


def newest_of_all(strategy: Any, folder: pathlib.Path, num_copies: int) -> _Found | None:
    """Returns the newest checkpoint of the writing processes; all processes call this together.

    Processes that lack the checkpoint receive it; its path is then their folder.

    Raises:
        ValueError: all of this process's checkpoints are damaged.
        PeerError: all of another process's checkpoints are damaged.
    """
    if not isinstance(strategy, TernGradStrategy) or strategy.num_processes == 1:
        found = newest_of(folder)
        return None if found is None else found[:2]
    found: Any = None

    def look():
        nonlocal found
        try:
            found = newest_of(folder)
        except (ValueError, OSError):
            # Only writers need intact checkpoints.
            if strategy.process_index <= num_copies:
                raise
        if found is None:
            return None
        description, _, content = found
        return [description.position.step, description.checksum, len(content)]

    told = run_on_all(strategy, "newest checkpoint", look)
    writers = [index for index in range(num_copies + 1) if index < len(told) and told[index]]
    if not writers:
        return None
    source = max(writers, key=lambda index: told[index][0])
    _, checksum, size = told[source]
    if any(one is None or one[1] != checksum for one in told):
        is_source = strategy.process_index == source
        content = found[2] if is_source else bytes(size)
        content = broadcast_bytes(strategy, content, source)
        if found is None or found[0].checksum != checksum:
            return files.parse(folder, content)
    return found[:2]

"""Sends the chief's variables to all processes of a cluster, bit for bit."""

import time
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.consistency.digests import copies_of, digest_of, gather_digests
from terngrad_tf.distribute.consistency.handshake import compare_processes

# 16 MiB.
_MAX_WORDS = 1 << 22
# If a message takes longer than TensorFlow's limit for heartbeats, processes consider each other
# lost; so sizes adapt to the links' speed, from 64 KiB on.
_FIRST_WORDS = 1 << 14
_SHORT_SECONDS, _LONG_SECONDS = 0.25, 1.0


def broadcast_variables(
    strategy: tf.distribute.Strategy, variables: Iterable[keras.Variable]
) -> None:
    """Gives the variables of all processes the chief's values.

    Every process of the cluster must call this function, outside replicas, with the same variables
    in the same order. All first send 16 bytes of each variable's SHA-256, then only missing values,
    and equal values once. Does nothing without a cluster.

    Example:
    >>> broadcast_variables(terngrad_tf.TernGradStrategy(num_nodes=1), [tf.Variable(1.0)])

    Args:
        strategy: a `TernGradStrategy`.
        variables: list of `tf.Variable` or `keras.Variable`, of any scope, any shapes and dtypes
            with a fixed size. All copies on a process's replicas take the chief's first copy.

    Raises:
        ValueError: a variable holds strings.
        PeerError: variables differ between the processes in number, shape or dtype.
    """
    variables = numbers(variables)
    if strategy.extended.process_group is None:
        return
    variables = [v.value if isinstance(v, keras.Variable) else v for v in variables]
    copies = [copies_of(strategy, variable) for variable in variables]
    metadata: dict[str, Any] = {"number of variables": len(copies)}
    for position, (variable, *_) in enumerate(copies):
        metadata[f"variable {position}"] = f"{variable.dtype.name} {variable.shape}"
    compare_processes(strategy, "variables", metadata)
    for chunk in _chunks(_missing(strategy, variables, copies)):
        values = [alike[0][0].numpy() for alike in chunk]
        content = _from_one(strategy, b"".join(value.tobytes() for value in values))
        offset = 0
        for alike, value in zip(chunk, values, strict=True):
            own = content[offset : offset + value.nbytes]
            offset += value.nbytes
            for local in alike:
                dtype, shape = local[0].dtype.as_numpy_dtype, local[0].shape
                for copy in local:
                    copy.assign(np.frombuffer(own, dtype).reshape(shape))
    strategy.extended.initial_values.are_equal(variables)


def numbers(variables: Iterable[Any]) -> list[Any]:
    """Returns a list of variables; raises ValueError if one holds strings."""
    variables = list(variables)
    for variable in variables:
        if variable.dtype == tf.string:
            raise ValueError(f"`variables` must hold numbers. Received: {variable.name} of strings")
    return variables


def broadcast_matrix(strategy: tf.distribute.Strategy, matrix: np.ndarray) -> None:
    """Overwrites all processes' matrices, of equal shape and contiguous rows, with the chief's.

    All processes call it.
    """
    if strategy.extended.process_group is None:
        return
    for row in matrix:
        row = np.ascontiguousarray(row).view(np.uint8)
        for start in range(0, row.size, 4 * _MAX_WORDS):
            piece = row[start : start + 4 * _MAX_WORDS]
            received = _from_one(strategy, piece.tobytes())
            if not strategy.is_chief:
                piece[:] = np.frombuffer(received, np.uint8)[: piece.size]


def broadcast_bytes(strategy: tf.distribute.Strategy, content: bytes, source: int) -> bytes:
    """Returns the bytes of the process `source` on all processes, where lengths are equal."""
    return _from_one(strategy, content, source)[: len(content)]


def _from_one(strategy, content, source=0):
    """Returns one process's bytes, in whole words; the others' bytes give the length."""
    if not content:
        return content
    words = np.frombuffer(content + bytes(-len(content) % 4), np.int32)
    is_source = strategy.process_index == source
    if not is_source:
        # Sums then hold the source's words.
        words = np.zeros_like(words)
    received, done, size, next_size = [], 0, _FIRST_WORDS, _FIRST_WORDS
    while done < len(words):
        begin = time.monotonic()
        # The source's clock determines the next size.
        told = np.array([next_size if is_source else 0], np.int32)
        message = tf.constant(np.concatenate([told, words[done : done + size]]))
        total = strategy.extended.process_group.all_reduce_sum(message).numpy()
        received.append(total[1:])
        done, size = done + size, int(total[0])
        seconds = time.monotonic() - begin
        if seconds < _SHORT_SECONDS:
            next_size = min(2 * size, _MAX_WORDS)
        elif seconds > _LONG_SECONDS:
            next_size = max(size // 2, 1)
    return np.concatenate(received).tobytes()


def _missing(strategy, variables, copies):
    """Returns lists of copies of variables that a process lacks, equal on the chief."""
    digests = gather_digests(strategy, [digest_of(strategy, v) for v in variables])
    is_missing = (digests != digests[0]).any(axis=0)
    missing = {}
    for local, is_one, digest in zip(copies, is_missing, digests[0], strict=True):
        if is_one:
            missing.setdefault(digest.tobytes(), []).append(local)
    return list(missing.values())


def _chunks(missing):
    """Yields lists of these lists, of about `_MAX_WORDS` words or one larger list."""
    chunk, size = [], 0
    for alike in missing:
        words = alike[0][0].shape.num_elements() * alike[0][0].dtype.size // 4
        if chunk and size + words > _MAX_WORDS:
            yield chunk
            chunk, size = [], 0
        chunk.append(alike)
        size += words
    if chunk:
        yield chunk

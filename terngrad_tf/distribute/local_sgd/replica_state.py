"""Variables that differ between replicas, in checkpoints and between processes."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import safetensors.numpy
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.consistency.broadcast import broadcast_matrix

# 1 MiB.
_PIECE_WORDS = 1 << 18


class ReplicaState(tf.train.experimental.PythonState):
    """Saves the variables of all replicas in a `tf.train.Checkpoint`.

    `on_set` is called before the variables are set.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        variables: Sequence[tf.Variable],
        on_set: Callable[[], Any] = lambda: None,
    ) -> None:
        self._strategy = strategy
        self._variables = list(variables)
        self._on_set = on_set
        # Of all processes: gathered to be saved, or restored to be scattered.
        self._gathered: list[np.ndarray] | None = None
        self._restored: list[np.ndarray] | None = None

    def add(self, variables: Sequence[keras.Variable]) -> None:
        """Adds `keras.Variable`s that differ between replicas, such as batch-norm statistics."""
        known = {id(variable) for variable in self._variables}
        added = (variable.value for variable in variables)
        self._variables += [variable for variable in added if id(variable) not in known]

    @property
    def _group(self):
        return getattr(self._strategy.extended, "process_group", None)

    def get(self) -> list[np.ndarray]:
        """Arrays of the variables, `[replicas, ...]`; of all processes after `gather`."""
        if self._gathered is not None:
            return self._gathered
        return [
            np.stack([component.numpy() for component in private.local_tensors(variable)])
            for variable in self._variables
        ]

    def set(self, arrays: Sequence[np.ndarray], first_replica: int = 0) -> None:
        """Sets the local replicas' variables to arrays of `get`; more replicas reuse them in turn.

        Raises:
            ValueError: the arrays are of other variables.
        """
        expected = [tuple(variable.shape) for variable in self._variables]
        received = [array.shape[1:] for array in arrays]
        if received != expected:
            raise ValueError(
                "The replicas' state must be saved by an optimizer with the same weights and"
                f" options. Received: shapes {received}, where {expected} are expected"
            )
        self._on_set()
        for variable, array in zip(self._variables, arrays, strict=True):
            for replica, component in enumerate(private.local_tensors(variable)):
                component.assign(array[(first_replica + replica) % len(array)])

    def serialize(self) -> bytes:
        """State as the bytes of a safetensors file."""
        return safetensors.numpy.save({str(i): array for i, array in enumerate(self.get())})

    def deserialize(self, string_value: bytes) -> None:
        """Restores the state that `serialize` returned."""
        named = safetensors.numpy.load(string_value)
        self.restore([named[str(i)] for i in range(len(named))])

    def restore(self, arrays: Sequence[np.ndarray]) -> None:
        """Sets the variables; keeps the states of other processes until `scatter`."""
        self.set(arrays)
        self._restored = list(arrays) if self._group else None

    def any_process(self, says_so: bool) -> bool:
        """True if it is True on any process; all call it, outside of replicas."""
        if self._group is None:
            return says_so
        return bool(self._group.all_reduce_max(tf.constant([float(says_so)])).numpy()[0])

    def gather(self, keeps: bool | None = None) -> None:
        """Collects the states of all processes, so that one can save them until `forget`.

        All call it, outside of replicas. By default the chief `keeps` the states.
        """
        group = self._group
        if group is None:
            return
        rows = _pack(self.get())
        words = np.frombuffer(rows.tobytes() + bytes(-rows.size % 4), np.int32)
        pieces = [
            group.all_gather(tf.constant(words[start : start + _PIECE_WORDS])).numpy()
            for start in range(0, words.size, _PIECE_WORDS)
        ]
        if self._strategy.is_chief if keeps is None else keeps:
            of_processes = np.concatenate(pieces, 1).view(np.uint8)[:, : rows.size]
            self._gathered = self._unpack(of_processes.reshape(-1, rows.shape[1]))

    def forget(self) -> None:
        """Drops the states that `gather` collected."""
        self._gathered = None

    def scatter(self) -> None:
        """Sends each process its part of the state that the chief restored, if it did.

        All call it, outside of replicas.
        """
        group = self._group
        if group is None:
            return
        arrays, self._restored = self._restored, None
        if not self.any_process(self._strategy.is_chief and arrays is not None):
            return
        own = _pack(self.get())
        restored = None if arrays is None else _pack(arrays)
        num_local = len(own)
        for replica in range(num_local * group.size):
            row = (
                np.zeros_like(own[:1])
                if restored is None
                else restored[None, replica % len(restored)]
            )
            broadcast_matrix(self._strategy, row)
            if replica // num_local == group.rank:
                own[replica % num_local] = row[0]
        self.set(self._unpack(own))

    def _unpack(self, rows):
        """Converts bytes `[replicas, bytes]` to arrays `[replicas, ...]`."""
        arrays, start = [], 0
        for variable in self._variables:
            dtype = np.dtype(variable.dtype.as_numpy_dtype)
            size = dtype.itemsize * variable.shape.num_elements()
            part = np.ascontiguousarray(rows[:, start : start + size]).view(dtype)
            arrays.append(part.reshape(len(rows), *variable.shape))
            start += size
        return arrays


def _pack(arrays):
    """Converts arrays `[replicas, ...]` to bytes `[replicas, bytes]`."""
    parts = [np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8) for array in arrays]
    return np.concatenate(parts, 1)

"""What each replica has of its own, in checkpoints and between processes."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import safetensors.numpy
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.consistency.broadcast import broadcast_matrix

# What travels at once: 1 MiB.
_PIECE_WORDS = 1 << 18


class ReplicaState(tf.train.experimental.PythonState):
    """Saves variables that differ between replicas, for all of them, in a `tf.train.Checkpoint`.

    Args:
        strategy: the strategy under which the variables were made.
        variables: list of distributed or plain `tf.Variable`s.
        on_set: function that is called before variables get other values from here.
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
        """Adds what differs between replicas or processes beside the optimizer's own variables.

        Args:
            variables: list of `keras.Variable`s, such as a model's `non_trainable_variables`, in
                which batch norm keeps each process's statistics.
        """
        self._variables += [variable.value for variable in variables]

    @property
    def _group(self):
        return getattr(self._strategy.extended, "process_group", None)

    def get(self) -> list[np.ndarray]:
        """An array of each variable, `[replicas, ...]`; of all processes after `gather`."""
        if self._gathered is not None:
            return self._gathered
        return [
            np.stack([component.numpy() for component in private.local_tensors(variable)])
            for variable in self._variables
        ]

    def set(self, arrays: Sequence[np.ndarray], first_replica: int = 0) -> None:
        """Gives the local replicas their parts of what `get` returned.

        More replicas than were saved take what there is in turn.

        Args:
            arrays: list of arrays.
            first_replica: number of the first local replica.

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
        """The state as the bytes of a safetensors file."""
        return safetensors.numpy.save({str(i): array for i, array in enumerate(self.get())})

    def deserialize(self, string_value: bytes) -> None:
        """Takes the state that `serialize` returned."""
        named = safetensors.numpy.load(string_value)
        self.restore([named[str(i)] for i in range(len(named))])

    def restore(self, arrays: Sequence[np.ndarray]) -> None:
        """As `set`; keeps the other processes' parts until `scatter`."""
        self.set(arrays)
        self._restored = list(arrays) if self._group else None

    def any_process(self, says_so: bool) -> bool:
        """Whether any process says so; every process of a cluster calls it, outside of replicas."""
        if self._group is None:
            return says_so
        return bool(self._group.all_reduce_max(tf.constant([float(says_so)])).numpy()[0])

    def gather(self, keeps: bool | None = None) -> None:
        """Collects the state of all processes on those that can then save it, until `forget`.

        Every process of a cluster calls it, outside of replicas, and receives the others' states.

        Args:
            keeps: whether this process is one of those. Default: where it is the chief.
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
        """Ends what `gather` began: the local replicas' state is saved again."""
        self._gathered = None

    def scatter(self) -> None:
        """Gives each process its part of what the chief restored, if it did.

        Every process of a cluster calls it, outside of replicas.
        """
        group = self._group
        if group is None:
            return
        own = _pack(self.get())
        restored = None if self._restored is None else _pack(self._restored)
        num_local, self._restored = len(own), None
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
        """Arrays `[replicas, ...]` of bytes `[replicas, bytes]`."""
        arrays, start = [], 0
        for variable in self._variables:
            dtype = np.dtype(variable.dtype.as_numpy_dtype)
            size = dtype.itemsize * variable.shape.num_elements()
            part = np.ascontiguousarray(rows[:, start : start + size]).view(dtype)
            arrays.append(part.reshape(len(rows), *variable.shape))
            start += size
        return arrays


def _pack(arrays):
    """Bytes `[replicas, bytes]` of arrays `[replicas, ...]`."""
    parts = [np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8) for array in arrays]
    return np.concatenate(parts, 1)

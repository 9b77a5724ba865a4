"""One bucket of gradients from local tensors to their sum over all replicas."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.quantization import Quantization

# A bucket is sent as soon as its gradients exist, while earlier layers still compute theirs. Large
# enough that the latency of a collective does not count.
BUCKET_ELEMENTS = 4 * 2**20


class ReductionContext:
    """Who takes part in an exchange.

    Args:
        devices: the device of each local replica.
        num_replicas: replicas of all processes.
        processes: `ProcessGroup`; None where nothing leaves this process.
    """

    def __init__(self, devices: Sequence[str], num_replicas: int, processes: Any) -> None:
        self.devices = devices
        self.num_local = len(devices)
        self.num_replicas = num_replicas
        self.processes = processes
        self.first_replica = processes.rank * self.num_local if processes else 0
        # XLA compiles for each device anew. Logical CPU devices share memory and threads, so what
        # they would all compute is computed, and compiled, on the first.
        self.encode_devices = [device if "GPU" in device else devices[0] for device in devices]

    @classmethod
    def of(cls, strategy: tf.distribute.Strategy) -> "ReductionContext":
        """The context of a `tf.distribute.Strategy`."""
        extended = strategy.extended
        processes = getattr(extended, "process_group", None)
        return cls(extended.worker_devices, strategy.num_replicas_in_sync, processes)

    @property
    def num_members(self) -> int:
        """Members of the exchange: processes, or the replicas of a single process."""
        return self.processes.size if self.processes else self.num_replicas

    def wire(self, name: str, sizes: Sequence[int], quantization: Quantization) -> Any:
        """The `Wire` of a name for tensors with these numbers of elements, rounded in this way."""
        num_local = self.num_local if self.processes else 1
        how = quantization.levels, bool(quantization.rotate)
        return wires.choose(name, sizes, self.num_members, num_local, *how)

    def with_processes(self, processes: Any) -> "ReductionContext":
        """A copy whose messages travel by `processes`."""
        context = copy.copy(self)
        context.processes = processes
        return context

    def on_all_devices(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        """A copy of a tensor for each local replica, one a device."""
        copies = {}
        for device in dict.fromkeys(self.devices):
            with tf.device(device):
                copies[device] = tf.identity(tensor)
        return [copies[device] for device in self.devices]

    def shared_scales(self, local_scales: tf.Tensor, told: Any = None) -> Any:
        """The largest scales, `[T]`, of those of each local replica and of all processes.

        With `told`, a float32 vector of each process, a pair of them and of its largest elements.
        """
        with tf.device(self.devices[0]):
            scales = tf.reduce_max(tf.stack(local_scales), axis=0)
            if told is None:
                return self.processes.all_reduce_max(scales) if self.processes else scales
            largest = self.processes.all_reduce_max(tf.concat([scales, told], axis=0))
            return tf.split(largest, [scales.shape[0], told.shape[0]])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """T gradients that travel together, of each local replica.

    Attributes:
        context: `ReductionContext`.
        quantization: how the gradients are rounded.
        gradients: list with the T tensors of each local replica.
        scales: float32 tensor of shape [T], the scales shared by all replicas; of gradients that
            are to be rotated, `[blocks]`.
        indices: T integers that select the random bits of each tensor.
        step: the step, a scalar integer tensor.
        measured: of gradients that are to be rotated, what `Quantization.local_scales` told of
            each local replica's.
        is_rotated: whether the gradients are rotated ones, in units of their scales.
    """

    context: ReductionContext
    quantization: Quantization
    gradients: list
    scales: tf.Tensor
    indices: list[int]
    step: tf.Tensor
    measured: list | None = None
    is_rotated: bool = False

    @property
    def processes(self) -> Any:
        """`ProcessGroup`; None where nothing leaves this process."""
        return self.context.processes

    @property
    def units(self) -> tf.Tensor:
        """What a code of 1 stands for in each tensor, `[T]`."""
        if self.is_rotated:
            return self.scales
        return self.quantization.units(self.scales)

    @property
    def sizes(self) -> list[int]:
        return [gradient.shape.num_elements() for gradient in self.gradients[0]]

    def words_of_replicas(self, base: int) -> Any:
        """The codes of each local replica, int32 `[W]`, as digits in `base`."""
        words = []
        context = self.context
        for replica, device in enumerate(context.encode_devices):
            with tf.device(device):
                words.append(
                    self.quantization.encode(
                        list(self.gradients[replica]),
                        self.scales,
                        step=self.step,
                        replica=context.first_replica + replica,
                        num_replicas=context.num_replicas,
                        base=base,
                        tensors=self.indices,
                    )
                )
        return words

    def words(self, base: int) -> Any:
        """The sum of the local replicas' words, int32 `[W]`."""
        words = [tf.bitcast(words, tf.uint32) for words in self.words_of_replicas(base)]
        # Not as int32, which TensorFlow adds on a GPU's host.
        return tf.bitcast(tf.add_n(words), tf.int32)

    def decode(self, words: tf.Tensor, **options: Any) -> Any:
        """`ternary.decode` to tensors like the gradients."""
        return ternary.decode(words, self.units, *self._specs(), **options)

    def decode_chunks(self, words: tf.Tensor, **options: Any) -> Any:
        """`ternary.decode_chunks` to tensors like the gradients."""
        return ternary.decode_chunks(words, self.units, *self._specs(), **options)

    def requantize_chunk(self, words: tf.Tensor, **options: Any) -> Any:
        """`ternary.requantize_chunk` with these levels, this step and seed."""
        how = {"seed": self.quantization.seed, "levels": self.quantization.levels}
        return ternary.requantize_chunk(
            words, self.context.num_replicas, step=self.step, **how, **options
        )

    def sum_scales(self, words: tf.Tensor, widths: Sequence[int], **options: Any) -> tf.Tensor:
        """`ternary.sum_scales` with these levels; sums are clipped if gradients may be."""
        how = {"clip": self.quantization.clip_factor != 0, "levels": self.quantization.levels}
        return ternary.sum_scales(words, widths, self.context.num_replicas, **how, **options)

    def sum_codes(self) -> Any:
        """The sums where all replicas are in this process, without packed words."""
        context, of_devices = self.context, []
        for device in dict.fromkeys(context.encode_devices):
            mine = [k for k, d in enumerate(context.encode_devices) if d == device]
            with tf.device(device):
                of_devices.append(
                    self.quantization.sum_codes(
                        [self.gradients[k] for k in mine],
                        self.scales,
                        step=self.step,
                        replicas=mine,
                        num_replicas=context.num_replicas,
                        tensors=self.indices,
                    )
                )
        if self.is_rotated:
            return [tf.add_n(sums) for sums in zip(*of_devices, strict=True)]
        finite = tf.math.is_finite(self.scales)
        units = tf.unstack(tf.where(finite, self.units, tf.constant(float("nan"), tf.float32)))
        return [
            tf.cast(unit * tf.add_n(sums), gradient.dtype)
            for *sums, unit, gradient in zip(*of_devices, units, self.gradients[0], strict=True)
        ]

    @property
    def rotation(self) -> "ternary.Rotation | None":
        """`ternary.Rotation` of the gradients; None where they are rounded as they are."""
        if self.is_rotated:
            return None
        shapes, _ = self._specs()
        return self.quantization.rotation(shapes, self.context.num_replicas)

    def rotated(self) -> "Bucket":
        """The bucket of the rotated gradients, which has vectors of the same elements."""
        rotation, vectors = self.rotation, []
        for replica, device in enumerate(self.context.encode_devices):
            with tf.device(device):
                vectors.append(
                    rotation.rotate(
                        list(self.gradients[replica]),
                        self.measured[replica],
                        self.scales,
                        **self._signs(),
                    )
                )
        return dataclasses.replace(
            self,
            gradients=vectors,
            scales=tf.ones([len(rotation.sizes)]),
            indices=self.quantization.indices_of_vectors(self.indices[0], len(rotation.sizes)),
            measured=None,
            is_rotated=True,
        )

    def rotated_back(self, sums: Sequence[tf.Tensor]) -> Any:
        """The T tensors that sums of the codes of `rotated()` stand for."""
        _, dtypes = self._specs()
        return self.rotation.rotate_back(sums, self.scales, dtypes, **self._signs())

    @property
    def noise(self) -> list[tf.Tensor] | None:
        """The variance that rounding adds to each element of the sums of the T gradients.

        A float32 tensor `[blocks]` for each gradient, of its `ternary.block_sizes`: it is the same
        in all of a block. None of gradients that are not rotated, as there it differs by element.
        """
        if self.rotation is None:
            return None
        with tf.device(self.context.devices[0]):
            noise = self.quantization.noise(self.scales, self.context.num_replicas)
            return self.rotation.split_blocks(noise)

    def _signs(self):
        return {"seed": self.quantization.seed, "step": self.step, "tensor": self.indices[0]}

    def _specs(self):
        """Shapes and dtypes of the gradients."""
        return [g.shape for g in self.gradients[0]], [g.dtype for g in self.gradients[0]]


def buckets(sizes: Sequence[int], bucket_elements: int = BUCKET_ELEMENTS) -> Any:
    """Splits positions 0..len(sizes)-1 into buckets, last layers (first gradients) first.

    Args:
        sizes: elements of each tensor.
        bucket_elements: a bucket is closed when it holds this many.

    Returns:
        List of lists of positions, each position once.
    """
    result, current, total = [], [], 0
    for position in reversed(range(len(sizes))):
        current.append(position)
        total += sizes[position]
        if total >= bucket_elements:
            result.append(current)
            current, total = [], 0
    return result + [current] if current else result


def reduce_bucket(bucket: Bucket, wire: Any) -> tuple[list[Any], Any]:
    """Rounds, exchanges and sums the tensors of one bucket.

    Args:
        bucket: `Bucket`.
        wire: one of `WIRES`.

    Returns:
        List of T lists with the sum on each local device, and the words that this member received:
        a number, or a float32 scalar tensor where the wire has no fixed size.
    """
    context = bucket.context
    wire = context.wire(wire, bucket.sizes, bucket.quantization)
    with tf.device(context.devices[0]):
        rounded = bucket.rotated() if bucket.rotation else bucket
        # Where nothing travels, all lossless wires give the same.
        if context.processes is None and wire.is_lossless and wire.has_fixed_size:
            sums, received = rounded.sum_codes(), wire.received_words
        else:
            sums, received = wire.sum(rounded)
        sums = bucket.rotated_back(sums) if bucket.rotation else sums
    return [context.on_all_devices(total) for total in sums], received

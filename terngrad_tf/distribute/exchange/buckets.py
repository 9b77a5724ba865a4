"""Sums a bucket of gradients over all replicas."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.scales import share_scales

# A bucket leaves while earlier layers compute; this size makes a collective's latency negligible.
BUCKET_ELEMENTS = 4 * 2**20


class ReductionContext:
    """The participants of an exchange.

    Args:
        devices: the device of each local replica.
        num_replicas: replicas of all processes.
        processes: `ProcessGroup`; None without other processes.
    """

    def __init__(self, devices: Sequence[str], num_replicas: int, processes: Any) -> None:
        self.devices = devices
        self.num_local = len(devices)
        self.num_replicas = num_replicas
        self.processes = processes
        self.first_replica = processes.rank * self.num_local if processes else 0
        # XLA compiles once per device. Logical CPU devices share threads, so one encodes for all.
        self.encode_devices = [device if "GPU" in device else devices[0] for device in devices]

    @classmethod
    def of(cls, strategy: tf.distribute.Strategy) -> "ReductionContext":
        """Returns the context of a `tf.distribute.Strategy`."""
        extended = strategy.extended
        processes = getattr(extended, "process_group", None)
        return cls(extended.worker_devices, strategy.num_replicas_in_sync, processes)

    @property
    def num_members(self) -> int:
        """Members of the exchange: processes, or the replicas of a single process."""
        return self.processes.size if self.processes else self.num_replicas

    def wire(self, name: str, sizes: Sequence[int], quantization: Quantization) -> Any:
        """Returns the `Wire` of a name for tensors of these sizes."""
        num_local = self.num_local if self.processes else 1
        how = quantization.levels, bool(quantization.rotate)
        return wires.choose(name, sizes, self.num_members, num_local, *how)

    def with_processes(self, processes: Any) -> "ReductionContext":
        """Returns a copy that sends its messages by `processes`."""
        context = copy.copy(self)
        context.processes = processes
        return context

    def on_all_devices(self, tensor: tf.Tensor) -> list[tf.Tensor]:
        """Returns a copy for each local replica, one per device."""
        copies = {}
        for device in dict.fromkeys(self.devices):
            with tf.device(device):
                copies[device] = tf.identity(tensor)
        return [copies[device] for device in self.devices]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """T gradients of each local replica that travel together.

    Attributes:
        gradients: the T tensors of each local replica.
        measured: `Quantization.local_scales` of each local replica's gradients.
        indices: T integers that select the random bits.
        scales: float32 `[T]`, shared by all replicas; `[blocks]` before a rotation; None before
            `with_shared_scales`.
        noise_of_sums: `SharedScales.noise`, before a rotation.
        is_rotated: gradients are rotated, in units of their scales.
        number: place among the buckets of an exchange.
        told: float32 vector that travels beside the scales, then the largest of all processes.
    """

    context: ReductionContext
    quantization: Quantization
    gradients: list
    measured: list
    indices: list[int]
    step: tf.Tensor
    scales: Any = None
    noise_of_sums: tf.Tensor | None = None
    is_rotated: bool = False
    number: int = 0
    told: tf.Tensor | None = None

    def with_shared_scales(self) -> "Bucket":
        """Exchanges the measured scales with the other members."""
        rotate = self.quantization.rotate
        local = [own[0] for own in self.measured] if rotate else self.measured
        shared = share_scales(self.context, self.quantization, local, self.told)
        return dataclasses.replace(
            self, scales=shared.largest, noise_of_sums=shared.noise, told=shared.told
        )

    @property
    def processes(self) -> Any:
        """The `ProcessGroup`; None without other processes."""
        return self.context.processes

    @property
    def units(self) -> tf.Tensor:
        """The value of a code of 1 in each tensor, `[T]`."""
        if self.is_rotated:
            return self.scales
        return self.quantization.units(self.scales)

    @property
    def sizes(self) -> list[int]:
        return [gradient.shape.num_elements() for gradient in self.gradients[0]]

    def words_of_replicas(self, base: int) -> Any:
        """Returns the codes of each local replica, int32 `[W]`, as digits in `base`."""
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
        """Returns the sum of the local replicas' words, int32 `[W]`."""
        words = [tf.bitcast(words, tf.uint32) for words in self.words_of_replicas(base)]
        # Not as int32, which TensorFlow adds on a GPU's host.
        return tf.bitcast(tf.add_n(words), tf.int32)

    def decode(self, words: tf.Tensor, **options: Any) -> Any:
        """`ternary.decode` to tensors like the gradients."""
        return ternary.decode(words, self.units, *self._specs(), **options)

    def decode_chunks(self, words: tf.Tensor, **options: Any) -> Any:
        """`ternary.decode_chunks` to tensors like the gradients."""
        return ternary.decode_chunks(words, self.units, *self._specs(), **options)

    def requantize_chunk(self, words: tf.Tensor, owner: int, **options: Any) -> Any:
        """`ternary.requantize_chunk` with these levels, this step and seed.

        Each bucket has random bits of its own.
        """
        how = {"seed": self.quantization.seed, "levels": self.quantization.levels}
        stream = self.indices[0] * self.context.num_members + owner
        return ternary.requantize_chunk(
            words, self.context.num_replicas, step=self.step, stream=stream, **how, **options
        )

    def sum_scales(self, words: tf.Tensor, widths: Sequence[int], **options: Any) -> tf.Tensor:
        """`ternary.sum_scales` with these levels; sums are clipped if gradients may be."""
        how = {"clip": self.quantization.clip_factor != 0, "levels": self.quantization.levels}
        return ternary.sum_scales(words, widths, self.context.num_replicas, **how, **options)

    def sum_errors(self, words: tf.Tensor, widths: Sequence[int], scales: Any, base: int) -> Any:
        """`ternary.sum_errors` with these levels."""
        num_replicas, levels = self.context.num_replicas, self.quantization.levels
        return ternary.sum_errors(words, widths, scales, num_replicas, levels=levels, base=base)

    def sum_codes(self) -> Any:
        """Returns the sums without packed words, if all replicas are in this process."""
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
            return [ternary.sum_in_order(sums) for sums in zip(*of_devices, strict=True)]
        finite = tf.math.is_finite(self.scales)
        units = tf.unstack(tf.where(finite, self.units, tf.constant(float("nan"), tf.float32)))
        return [
            tf.cast(unit * tf.add_n(sums), gradient.dtype)
            for *sums, unit, gradient in zip(*of_devices, units, self.gradients[0], strict=True)
        ]

    @property
    def rotation(self) -> "ternary.Rotation | None":
        """The `ternary.Rotation` of the gradients; None if they are not to be rotated."""
        if self.is_rotated:
            return None
        shapes, _ = self._specs()
        return self.quantization.rotation(shapes, self.context.num_replicas)

    def rotated(self) -> "Bucket":
        """Returns the bucket of the rotated gradients, as vectors."""
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
            noise_of_sums=None,
            is_rotated=True,
        )

    def rotated_back(self, sums: Sequence[tf.Tensor]) -> Any:
        """Returns the T tensors that sums of the codes of `rotated()` represent."""
        _, dtypes = self._specs()
        return self.rotation.rotate_back(sums, self.scales, dtypes, **self._signs())

    def noise(self, errors: tf.Tensor | None = None) -> list[tf.Tensor] | None:
        """Returns the variance that rounding adds to the sums, a float32 `[blocks]` per gradient.

        None without rotation: the variance then differs by element. `errors` are the
        `wires.Sums.errors` of the rotated gradients.
        """
        if self.rotation is None:
            return None
        if errors is not None:
            errors = self.rotation.spread_to_blocks(errors)
        noise = self.quantization.noise(self.scales, self.noise_of_sums, errors)
        return self.rotation.split_blocks(noise)

    def _signs(self):
        return {"seed": self.quantization.seed, "step": self.step, "tensor": self.indices[0]}

    def _specs(self):
        """Returns the shapes and dtypes of the gradients."""
        return [g.shape for g in self.gradients[0]], [g.dtype for g in self.gradients[0]]


def buckets(sizes: Sequence[int], bucket_elements: int = BUCKET_ELEMENTS) -> Any:
    """Splits positions 0..len(sizes)-1 into buckets, last layers (first gradients) first.

    A bucket closes when it holds `bucket_elements`.
    """
    result, current, total = [], [], 0
    for position in reversed(range(len(sizes))):
        current.append(position)
        total += sizes[position]
        if total >= bucket_elements:
            result.append(current)
            current, total = [], 0
    return result + [current] if current else result


def reduce_bucket(bucket: Bucket, wire: Any) -> tuple[list, Any, list[tf.Tensor] | None]:
    """Rounds, exchanges and sums the tensors of one bucket.

    Returns:
        T lists with the sum on each local device; the received words, a number, or a float32 scalar
        tensor if the wire has no fixed size; and `Bucket.noise`.
    """
    context = bucket.context
    wire = context.wire(wire, bucket.sizes, bucket.quantization)
    with tf.device(context.devices[0]):
        rounded = bucket.rotated() if bucket.rotation else bucket
        # All lossless wires give the same result if the sum stays in this process.
        if context.processes is None and wire.is_lossless and wire.has_fixed_size:
            total = wires.Sums(rounded.sum_codes(), wire.received_words)
        else:
            total = wire.sum(rounded)
        sums = bucket.rotated_back(total.tensors) if bucket.rotation else total.tensors
        noise = bucket.noise(total.errors)
    sums = [context.on_all_devices(of_tensor) for of_tensor in sums]
    return sums, total.received_words, noise

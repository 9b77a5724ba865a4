"""The plan of an exchange: which gradients travel how."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.buckets import Bucket, ReductionContext, buckets
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.sparse_rows import Table
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, Traffic, float_traffic
from terngrad_tf.distribute.private.replicas.devices import local_tensors


@dataclasses.dataclass(frozen=True)
class Job:
    """The sizes of an exchange.

    Attributes:
        num_local: replicas whose codes a member adds before it sends.
        buckets: elements of the ternary gradients.
        floats: elements of dense gradients that stay float.
        levels: L, for codes from -L to L, of gradients without finer codes.
        levels_of_buckets: L of each bucket. Default: `levels`.
        float_bytes: bytes of `floats`. Default: those of float32.
        bytes_as_floats: bytes of all gradients as floats. Default: those of float32.
    """

    num_members: int
    num_local: int
    buckets: tuple[tuple[int, ...], ...]
    floats: tuple[int, ...]
    levels: int = 1
    rotated: bool = False
    float_bytes: int = -1
    bytes_as_floats: int = -1
    levels_of_buckets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.levels_of_buckets:
            object.__setattr__(self, "levels_of_buckets", (self.levels,) * len(self.buckets))
        floats = WORD_BYTES * sum(self.floats)
        every = floats + WORD_BYTES * sum(map(sum, self.buckets))
        for name, default in (("float_bytes", floats), ("bytes_as_floats", every)):
            if getattr(self, name) < 0:
                object.__setattr__(self, name, default)

    @classmethod
    def of(
        cls,
        context: ReductionContext,
        quantization: Quantization,
        gradients: Sequence[Any],
        paths: Sequence[str],
        finer: Mapping[int, int] | None = None,
    ) -> "Job":
        """Returns the sizes of the exchange of T gradients; `finer` as in `batches`."""
        batches, _, floats = _positions(quantization, gradients, paths, finer)
        rounded = [batch.positions for batch in batches]
        return cls(
            context.num_members,
            context.num_local if context.processes else 1,
            tuple(tuple(_num_elements(gradients[i]) for i in bucket) for bucket in rounded),
            tuple(_num_elements(gradients[i]) for i in floats),
            quantization.levels,
            bool(quantization.rotate),
            sum(_num_bytes(gradients[i]) for i in floats),
            sum(_num_bytes(gradients[i]) for i in sum(rounded, floats)),
            tuple(batch.quantization.levels for batch in batches),
        )

    def with_rounded_floats(self) -> "Job":
        """The exchange of a job without buckets if its float gradients were rounded."""
        sizes = tuple(tuple(self.floats[i] for i in bucket) for bucket in buckets(self.floats))
        return dataclasses.replace(
            self, buckets=sizes, floats=(), float_bytes=0, levels_of_buckets=()
        )

    def wires(self, name: str, levels: int = 1) -> list[Any]:
        """Returns the `Wire` of each bucket by name, for at least these levels."""
        most = [max(levels, own) for own in self.levels_of_buckets]
        return [
            wires.choose(name, sizes, self.num_members, self.num_local, own, self.rotated)
            for sizes, own in zip(self.buckets, most, strict=True)
        ]

    def main_wire(self, name: str) -> str:
        """Returns the name of the largest bucket's wire, "float32" without buckets."""
        if not self.buckets:
            return "float32"
        return max(self.wires(name), key=lambda wire: wire.num_gradient_elements).name


class Batch(NamedTuple):
    """Dense gradients that travel as a bucket, by their positions, and how they are rounded."""

    positions: list[int]
    quantization: Quantization


class LocalScales(NamedTuple):
    """What the replicas measure of their gradients before an exchange.

    Attributes:
        scales: `Quantization.local_scales` of each bucket.
        times: time when each bucket's gradients existed, float64 scalar tensors; empty if not
            measured.
    """

    scales: list[Any]
    times: list[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """One exchange of T gradients. Positions count among them.

    Attributes:
        gradients: T values, each with one gradient a local replica.
        first: the T gradients of the first local replica.
        local_scales: values with one tensor a local replica.
        indices: T positions among the optimizer's variables; they select the random bits.
        sparse: positions of `tf.IndexedSlices` that travel as rows of floats.
        rows: positions of `tf.IndexedSlices` to round, see `sparse_rows`.
        floats: positions of dense gradients that travel as floats.
        buckets: the dense gradients to round.
        finer: least bits of the codes of some gradients, by position.
        job: sizes of the dense gradients.
        sparse_bytes: bytes of sparse gradients that this member receives, a number or an integer
            scalar tensor.
        float_sparse_bytes: the same if all rows traveled as floats.
        is_float: whether the step exchanges dense gradients as floats, see `float_steps`.
    """

    strategy: tf.distribute.Strategy
    context: ReductionContext
    quantization: Quantization
    gradients: Sequence[Any]
    first: list[Any]
    local_scales: LocalScales
    paths: Sequence[str]
    indices: Sequence[int]
    step: Any
    sparse: list[int]
    rows: list[int]
    floats: list[int]
    buckets: list[Batch]
    finer: Mapping[int, int]
    job: Job
    sparse_bytes: Any
    float_sparse_bytes: Any
    wire: str = "auto"
    is_float: bool = False

    @classmethod
    def of(
        cls,
        strategy: tf.distribute.Strategy,
        quantization: Quantization,
        gradients: Sequence[Any],
        local_scales: LocalScales,
        paths: Sequence[str],
        indices: Sequence[int],
        step: Any,
        finer: Mapping[int, int] | None = None,
        rounds_rows: bool = False,
    ) -> "Plan":
        """Sorts gradients by how they travel.

        `step` has a value for each local replica; `finer` is as in `batches`; `rounds_rows`: rows
        are rounded where rounding suits them.
        """
        context = ReductionContext.of(strategy)
        first = [local_tensors(gradient)[0] for gradient in gradients]
        rounded, sparse, floats = _positions(quantization, first, paths, finer)
        rows = quantization.row_positions(first, paths) if rounds_rows else []
        sparse_bytes = sum(_gathered_bytes(context, gradients[i]) for i in sparse)
        return cls(
            strategy=strategy,
            context=context,
            quantization=quantization,
            gradients=gradients,
            first=first,
            local_scales=local_scales,
            paths=paths,
            indices=indices,
            step=local_tensors(step)[0],
            sparse=[i for i in sparse if i not in rows],
            rows=rows,
            floats=floats,
            buckets=rounded,
            finer=finer or {},
            job=Job.of(context, quantization, first, paths, finer),
            sparse_bytes=sparse_bytes,
            float_sparse_bytes=sparse_bytes,
        )

    def with_row_bytes(self, received: Any) -> "Plan":
        """The same exchange, of whose `rows` this member received these bytes."""
        floats = self.float_sparse_bytes - self.float_row_bytes
        return dataclasses.replace(self, sparse_bytes=floats + received)

    @property
    def rounded(self) -> list[int]:
        """Positions of dense gradients to round."""
        return [i for batch in self.buckets for i in batch.positions]

    @property
    def float_row_bytes(self) -> Any:
        """Bytes that this member would receive if `rows` traveled as floats."""
        return sum(_gathered_bytes(self.context, self.gradients[i]) for i in self.rows)

    def tables(self, wire: str) -> list[Table]:
        """The gradients of `rows`; whole tensors travel by `wire`."""
        return [
            Table(
                context=self.context,
                quantization=self.quantization.finer(self.finer.get(i, 0)),
                wire=wire,
                gradients=self.local(i),
                index=self.indices[i],
                step=self.step,
            )
            for i in self.rows
        ]

    def by(self, wire: str) -> "Plan":
        """The same exchange by another wire."""
        return dataclasses.replace(self, wire=wire)

    def as_floats(self) -> "Plan":
        """The exchange of a step for which `float_steps` is true."""
        floats = sorted(self.rounded + self.floats)
        return dataclasses.replace(self, floats=floats, buckets=[], is_float=True)

    @property
    def rounded_traffic(self) -> Traffic:
        """`Traffic` of the dense gradients in steps that are not float; without streams."""
        job = self.job
        floats = float_traffic(job.float_bytes, job.num_members)
        total = sum((wire.traffic for wire in job.wires(self.wire)), start=floats)
        # A wire does not know its gradients' type.
        as_floats = float_traffic(job.bytes_as_floats, job.num_members)
        return dataclasses.replace(
            total, wire=job.main_wire(self.wire), float32_bytes=as_floats.received_bytes
        )

    @property
    def traffic(self) -> Traffic:
        """`Traffic` of the dense gradients, without streams."""
        return self.rounded_traffic.as_float32() if self.is_float else self.rounded_traffic

    def local(self, position: int) -> Sequence[Any]:
        """The gradient of each local replica at a position."""
        return local_tensors(self.gradients[position], self.context.num_local)

    def bucket(self, number: int) -> Bucket:
        """The bucket of this number, before any scale is shared."""
        positions, quantization = self.buckets[number]
        scales = local_tensors(self.local_scales.scales[number], self.context.num_local)
        return Bucket(
            context=self.context,
            quantization=quantization,
            gradients=list(zip(*map(self.local, positions), strict=True)),
            measured=list(scales),
            indices=[self.indices[i] for i in positions],
            step=self.step,
            number=number,
        )

    def no_noise(self, positions: Sequence[int]) -> list[tf.Tensor]:
        """Zeros like `Bucket.noise` of the gradients at these positions."""
        counts = [len(ternary.block_sizes(_num_elements(self.first[i]))) for i in positions]
        return [tf.zeros([count]) for count in counts]


def batches(
    quantization: Quantization,
    gradients: Sequence[Any],
    paths: Sequence[str],
    finer: Mapping[int, int] | None = None,
) -> list[Batch]:
    """Returns the dense gradients to round, bucket by bucket, the last layers first.

    `finer` are the least bits of the codes of some gradients, by position.
    """
    alike: dict[Quantization, list[int]] = {}
    for i in quantization.ternary_positions(gradients, paths):
        alike.setdefault(quantization.finer((finer or {}).get(i, 0)), []).append(i)
    found = []
    for how, positions in alike.items():
        sizes = [_num_elements(gradients[i]) for i in positions]
        found += [Batch([positions[i] for i in bucket], how) for bucket in buckets(sizes)]
    # A bucket waits for its first layer.
    return sorted(found, key=lambda batch: min(batch.positions), reverse=True)


def _positions(quantization, gradients, paths, finer):
    """Gradients to round, bucket by bucket, and positions of sparse ones and of dense floats."""
    rounded = batches(quantization, gradients, paths, finer)
    sparse = [i for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)]
    others = {*sparse, *(i for batch in rounded for i in batch.positions)}
    floats = [i for i in range(len(gradients)) if i not in others]
    return rounded, sparse, floats


def _num_elements(tensor):
    return tensor.shape.num_elements() or 0


def _num_bytes(tensor):
    return _num_elements(tensor) * tensor.dtype.size


def _gathered_bytes(context, gradient):
    """Returns the bytes of float rows that a member receives, an int64 scalar tensor.

    Without processes, replicas count as members of equal size.
    """
    own = sum(
        tf.size(part, tf.int64) * part.dtype.size
        for slices in local_tensors(gradient, context.num_local)
        for part in (slices.values, slices.indices)
    )
    own //= 1 if context.processes else context.num_local
    return (context.num_members - 1) * own

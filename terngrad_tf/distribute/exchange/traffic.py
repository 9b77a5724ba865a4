"""The cost of an exchange in bytes."""

import dataclasses
import math
from typing import Any

WORD_BYTES = 4
# Up to this number of scales of all members, a second message takes longer.
_FEW_SCALES = 2**14


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The cost of one reduction of all gradients for every member.

    Attributes:
        wire: the wire of ternary gradients ("float32" if none is ternary).
        num_members: processes, or the replicas of a single process.
        received_bytes: payload bytes that each member receives per step, scales included.
        float32_bytes: bytes in a ring all-reduce of the gradients as floats, `2 (N-1)/N` times 4
            bytes per element, or the size of their type if not float32.
    """

    wire: str
    num_members: int
    received_bytes: int
    float32_bytes: int

    @property
    def compression_ratio(self) -> float:
        """`float32_bytes / received_bytes`; 1.0 without an exchange."""
        return self.float32_bytes / self.received_bytes if self.received_bytes else 1.0

    def as_float32(self) -> Any:
        """Returns the `Traffic` of the same gradients as floats."""
        return Traffic("float32", self.num_members, self.float32_bytes, self.float32_bytes)

    def __add__(self, other: "Traffic") -> "Traffic":
        wires = [t.wire for t in (self, other) if t.wire != "float32"]
        return Traffic(
            wire=wires[0] if wires else "float32",
            num_members=self.num_members,
            received_bytes=self.received_bytes + other.received_bytes,
            float32_bytes=self.float32_bytes + other.float32_bytes,
        )


@dataclasses.dataclass(frozen=True)
class PushTraffic:
    """The cost of one step of asynchronous training for a worker.

    Attributes:
        pushed_bytes: payload bytes sent to all servers together.
        pulled_bytes: payload bytes received from them.
        float32_bytes: `pushed_bytes` with float32 gradients.
    """

    pushed_bytes: int
    pulled_bytes: int
    float32_bytes: int

    @property
    def compression_ratio(self) -> float:
        """`float32_bytes / pushed_bytes`."""
        return self.float32_bytes / self.pushed_bytes

    def __add__(self, other: "PushTraffic") -> "PushTraffic":
        return PushTraffic(
            self.pushed_bytes + other.pushed_bytes,
            self.pulled_bytes + other.pulled_bytes,
            self.float32_bytes + other.float32_bytes,
        )


def ring_bytes(num_bytes: int, num_members: int) -> int:
    """Returns the bytes that each member receives in a ring all-reduce of `num_bytes`."""
    return round(2 * (num_members - 1) / num_members * num_bytes)


def float_traffic(num_bytes: int, num_members: int) -> Traffic:
    """Returns the traffic of gradients of `num_bytes` that travel as floats."""
    size = ring_bytes(num_bytes, num_members)
    return Traffic("float32", num_members, size, size)


def scales_travel_to_all(num_scales: int, num_members: int) -> bool:
    """Returns True if each member sends its scales to all others, see `scales`."""
    return num_members <= 3 or num_scales * num_members <= _FEW_SCALES


def chunk_of_scales(num_scales: int, num_members: int) -> int:
    """Returns the number of scales of a member's chunk if scales do not travel to all."""
    return math.ceil(num_scales / num_members)


def scale_bytes(num_scales: int, num_members: int, with_noise: bool) -> int:
    """Returns the bytes that each member receives until all know the shared scales.

    `with_noise`: the noise of rounding travels beside the scales of chunks.
    """
    if scales_travel_to_all(num_scales, num_members):
        return WORD_BYTES * (num_members - 1) * num_scales
    numbers = 3 if with_noise else 2
    return WORD_BYTES * numbers * (num_members - 1) * chunk_of_scales(num_scales, num_members)

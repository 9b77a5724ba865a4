"""What an exchange costs in bytes."""

import dataclasses
from typing import Any

WORD_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What one reduction of all gradients costs every member.

    Attributes:
        wire: the wire that carries ternary gradients ("float32" where none is ternary).
        num_members: replicas that exchange words: processes, or the replicas of a single process.
        received_bytes: payload bytes that each member receives a step, scales included.
        float32_bytes: the same for a float32 ring all-reduce, `2 (N-1)/N` times 4 bytes an element.
    """

    wire: str
    num_members: int
    received_bytes: int
    float32_bytes: int

    @property
    def compression_ratio(self) -> float:
        """`float32_bytes / received_bytes`; 1.0 where nothing is exchanged."""
        return self.float32_bytes / self.received_bytes if self.received_bytes else 1.0

    def as_float32(self) -> Any:
        """The same gradients' `Traffic` where all travel as float32."""
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
    """What one step of asynchronous training costs a worker.

    Attributes:
        pushed_bytes: payload bytes sent to all servers together.
        pulled_bytes: payload bytes received from them.
        float32_bytes: what `pushed_bytes` would be with float32 gradients.
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
    """Bytes that each member receives in a ring all-reduce of `num_bytes`."""
    return round(2 * (num_members - 1) / num_members * num_bytes)


def float32_traffic(num_elements: int, num_members: int) -> Traffic:
    """Traffic of `num_elements` that stay float32."""
    size = ring_bytes(4 * num_elements, num_members)
    return Traffic("float32", num_members, size, size)


def gathered_traffic(num_bytes: int, num_members: int) -> Traffic:
    """Traffic of sparse gradients: each member sends its `num_bytes` of rows to all others."""
    size = (num_members - 1) * num_bytes
    return Traffic("float32", num_members, size, size)

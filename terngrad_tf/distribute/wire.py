"""How ternary codes travel between replicas, and what each way costs in bytes.

N replicas on M processes hold one code in {-1, 0, 1} an element; all need the sum. The L = N/M
replicas of a process write their codes as digits in base 2L+1 and add the words: a process sends W
words, at 1.6 bits an element for one replica. Every process receives

| wire          | hops                                                   | words received          |
|---------------|--------------------------------------------------------|-------------------------|
| allgather     | all words to all processes                             | (M-1) W                 |
| alltoall      | chunk m to process m, which adds; sums (2N+1) to all   | (M-1) (W + sums) / M    |
| allreduce     | digits wide enough for the sum, stock all-reduce       | 2 (M-1) wide / M        |
| bidirectional | as alltoall, but sums are rounded to ternary once more | (M-1) (W + rounded) / M |

The first three are lossless: the result is the sum of the replicas' codes, bit for bit.
`bidirectional` is unbiased. "auto" takes the lossless wire with the fewest bytes.
"""

import dataclasses

from terngrad_tf import ternary

LOSSLESS = ("allgather", "alltoall", "allreduce")
WIRES = ("auto", *LOSSLESS, "bidirectional")
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
    def compression_ratio(self):
        """`float32_bytes / received_bytes`; 1.0 where nothing is exchanged."""
        return self.float32_bytes / self.received_bytes if self.received_bytes else 1.0

    def as_float32(self):
        """The same gradients' `Traffic` where all travel as float32."""
        return Traffic("float32", self.num_members, self.float32_bytes, self.float32_bytes)

    def __add__(self, other):
        wires = [t.wire for t in (self, other) if t.wire != "float32"]
        return Traffic(
            wire=wires[0] if wires else "float32",
            num_members=self.num_members,
            received_bytes=self.received_bytes + other.received_bytes,
            float32_bytes=self.float32_bytes + other.float32_bytes,
        )


def ring_bytes(num_bytes, num_members):
    """Bytes that each member receives in a ring all-reduce of `num_bytes`."""
    return round(2 * (num_members - 1) / num_members * num_bytes)


def float32_traffic(num_elements, num_members):
    """Traffic of `num_elements` that stay float32."""
    size = ring_bytes(4 * num_elements, num_members)
    return Traffic("float32", num_members, size, size)


def gathered_traffic(num_bytes, num_members):
    """Traffic of sparse gradients: each member sends its `num_bytes` of rows to all others."""
    size = (num_members - 1) * num_bytes
    return Traffic("float32", num_members, size, size)


@dataclasses.dataclass(frozen=True)
class ExchangePlan:
    """Static sizes of one exchange.

    Args:
        sizes: elements of each tensor.
        num_members: M, the members of the exchange.
        num_local: L, replicas whose codes a member adds before it sends.
    """

    sizes: tuple[int, ...]
    num_members: int
    num_local: int

    @property
    def num_replicas(self):
        return self.num_members * self.num_local

    @property
    def local_base(self):
        return 2 * self.num_local + 1

    @property
    def total_base(self):
        return 2 * self.num_replicas + 1

    def words(self, base):
        """Words of all tensors in `base`: every tensor starts a new word."""
        return sum(ternary.num_words(size, base) for size in self.sizes)

    @property
    def chunk_words(self):
        """Words of the chunk that one process adds up."""
        return -(-self.words(self.local_base) // self.num_members)

    def received_words(self, wire):
        """Words that each process receives, without the scales."""
        peers = self.num_members - 1
        if wire == "allgather":
            return peers * self.words(self.local_base)
        if wire == "allreduce":
            return 2 * peers * self.words(self.total_base) / self.num_members
        digits = self.chunk_words * ternary.digits_per_word(self.local_base)
        second_base = 3 if wire == "bidirectional" else self.total_base
        return peers * (self.chunk_words + ternary.num_words(digits, second_base))

    def choose(self, wire):
        """`wire`, or for "auto" the lossless one with the fewest bytes."""
        if wire == "auto":
            return min(LOSSLESS, key=self.received_words)
        return wire

    def traffic(self, wire):
        scales = ring_bytes(4 * len(self.sizes), self.num_members)
        return Traffic(
            wire=wire,
            num_members=self.num_members,
            received_bytes=round(WORD_BYTES * self.received_words(wire)) + scales,
            float32_bytes=ring_bytes(4 * sum(self.sizes), self.num_members),
        )

"""How ternary codes travel between workers, and what each way costs in bytes.

N workers on M hosts hold one code in {-1, 0, 1} an element; all need the sum. The L = N/M workers
of a host write their codes as digits in base 2L+1 and add the words: a host sends W words, at 1.6
bits an element for one worker. Every host receives

| wire      | hops                                                       | words received         |
|-----------|------------------------------------------------------------|------------------------|
| allgather | all hosts' words to all hosts                              | (M-1) W                |
| alltoall  | chunk m to host m, which adds; the sums (base 2N+1) to all | (M-1) (W + sums) / M   |
| lanes     | digits in lanes wide enough for the sum, stock all-reduce  | 2 (M-1) lanes / M      |
| both_ways | as alltoall, but the sums are rounded to ternary once more | (M-1) (W + rounded) / M |

The first three are lossless: the result is the sum of the workers' codes, bit for bit. `both_ways`
is unbiased. "auto" takes the lossless wire with the fewest bytes.
"""

import dataclasses

from terngrad_tf import ternary

LOSSLESS = ("allgather", "alltoall", "lanes")
WIRES = ("auto", *LOSSLESS, "both_ways")
WORD_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What one reduction of all gradients costs every worker.

    Attributes:
        wire: the wire that carries ternary gradients ("float32" where none is ternary).
        num_workers: workers that exchange words: hosts, or the virtual workers of a single host.
        received_bytes: payload bytes that each worker receives a step, scales included.
        float32_bytes: the same for a float32 ring all-reduce, `2 (N-1)/N` times 4 bytes an element.
    """

    wire: str
    num_workers: int
    received_bytes: int
    float32_bytes: int

    @property
    def compression_ratio(self):
        """`float32_bytes / received_bytes`; 1.0 where nothing is exchanged."""
        return self.float32_bytes / self.received_bytes if self.received_bytes else 1.0

    def as_float32(self):
        """The same gradients' `Traffic` where all travel as float32."""
        return Traffic("float32", self.num_workers, self.float32_bytes, self.float32_bytes)

    def __add__(self, other):
        wires = [t.wire for t in (self, other) if t.wire != "float32"]
        return Traffic(
            wire=wires[0] if wires else "float32",
            num_workers=self.num_workers,
            received_bytes=self.received_bytes + other.received_bytes,
            float32_bytes=self.float32_bytes + other.float32_bytes,
        )


def ring_bytes(num_bytes, num_workers):
    """Bytes that each worker receives in a ring all-reduce of `num_bytes`."""
    return round(2 * (num_workers - 1) / num_workers * num_bytes)


def float32_traffic(num_elements, num_workers):
    """Traffic of `num_elements` that stay float32."""
    size = ring_bytes(4 * num_elements, num_workers)
    return Traffic("float32", num_workers, size, size)


def gathered_traffic(num_bytes, num_workers):
    """Traffic of sparse gradients: each worker sends its `num_bytes` of rows to all others."""
    size = (num_workers - 1) * num_bytes
    return Traffic("float32", num_workers, size, size)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Static sizes of one exchange.

    Args:
        sizes: elements of each tensor.
        num_hosts: M, the members of the exchange.
        num_local: L, workers whose codes a member adds before it sends.
    """

    sizes: tuple[int, ...]
    num_hosts: int
    num_local: int

    @property
    def num_workers(self):
        return self.num_hosts * self.num_local

    @property
    def local_base(self):
        return 2 * self.num_local + 1

    @property
    def total_base(self):
        return 2 * self.num_workers + 1

    def words(self, base):
        """Words of all tensors in `base`: every tensor starts a new word."""
        return sum(ternary.num_words(size, base) for size in self.sizes)

    @property
    def chunk_words(self):
        """Words of the chunk that one host adds up."""
        return -(-self.words(self.local_base) // self.num_hosts)

    def received_words(self, wire):
        """Words that each host receives, without the scales."""
        peers = self.num_hosts - 1
        if wire == "allgather":
            return peers * self.words(self.local_base)
        if wire == "lanes":
            return 2 * peers * self.words(self.total_base) / self.num_hosts
        digits = self.chunk_words * ternary.digits_per_word(self.local_base)
        second_base = 3 if wire == "both_ways" else self.total_base
        return peers * (self.chunk_words + ternary.num_words(digits, second_base))

    def choose(self, wire):
        """`wire`, or for "auto" the lossless one with the fewest bytes."""
        if wire == "auto":
            return min(LOSSLESS, key=self.received_words)
        return wire

    def traffic(self, wire):
        scales = ring_bytes(4 * len(self.sizes), self.num_hosts)
        return Traffic(
            wire=wire,
            num_workers=self.num_hosts,
            received_bytes=round(WORD_BYTES * self.received_words(wire)) + scales,
            float32_bytes=ring_bytes(4 * sum(self.sizes), self.num_hosts),
        )

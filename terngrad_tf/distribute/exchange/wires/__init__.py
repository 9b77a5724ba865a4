"""Wires, which exchange codes between replicas: one class and one file per wire.

N replicas on M processes hold one code in {-1, 0, 1} per element; all need the sum. The L = N/M
replicas of a process add their codes as digits in base 2L+1: a process sends W words, at 1.6 bits
per element for one replica. Finer codes, from -l to l, count as sums of l ternary codes. Every
process receives

| wire          | hops                                                   | words received          |
|---------------|--------------------------------------------------------|-------------------------|
| allgather     | all words to all processes                             | (M-1) W                 |
| alltoall      | chunk m to process m, which adds; sums (2N+1) to all   | (M-1) (W + sums) / M    |
| allreduce     | digits wide enough for the sum, stock all-reduce       | 2 (M-1) wide / M        |
| bidirectional | as alltoall, but sums are rounded to a code once more  | (M-1) (W + rounded) / M |

Two wires send the lengths of streams, then ternary codes in streams, short if few codes are not 0
(`ternary.compress`).

| wire                 | hops                                     | received                       |
|----------------------|------------------------------------------|--------------------------------|
| sparse, few members  | as allgather, in streams                 | (M-1) the longest stream       |
| sparse, many         | as alltoall: chunks and sums, in streams | (M-1) the longest of both hops |
| sparse_bidirectional | as bidirectional, both in streams        | (M-1) the longest of both hops |

Sums of codes are written in balanced ternary (`ternary.sum_to_trits`), one stream per place.

The bidirectional wires are unbiased; all others are lossless: the sum of the replicas' codes, bit
for bit. "auto" selects the lossless wire of known size with the fewest bytes; between processes
`wire_choice` may select another.

A new wire is a file here and a name in `registry`.
"""

from terngrad_tf.distribute.exchange.wires.base import Sums, Wire
from terngrad_tf.distribute.exchange.wires.registry import (
    LOSSLESS,
    STREAMS,
    WIRES,
    choose,
    possible,
)
from terngrad_tf.distribute.exchange.wires.streams import NONZERO_SHARE

__all__ = [
    "LOSSLESS",
    "NONZERO_SHARE",
    "STREAMS",
    "WIRES",
    "Sums",
    "Wire",
    "choose",
    "possible",
]

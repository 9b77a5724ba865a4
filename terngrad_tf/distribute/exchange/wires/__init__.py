"""How codes travel between replicas: one class, and one file, a wire.

N replicas on M processes hold one code in {-1, 0, 1} an element; all need the sum. The L = N/M
replicas of a process write their codes as digits in base 2L+1 and add the words: a process sends W
words, at 1.6 bits an element for one replica. Finer codes, of -l to l, are sums of l ternary ones
to a wire, and take digits as if there were l times as many replicas. Every process receives

| wire          | hops                                                   | words received          |
|---------------|--------------------------------------------------------|-------------------------|
| allgather     | all words to all processes                             | (M-1) W                 |
| alltoall      | chunk m to process m, which adds; sums (2N+1) to all   | (M-1) (W + sums) / M    |
| allreduce     | digits wide enough for the sum, stock all-reduce       | 2 (M-1) wide / M        |
| bidirectional | as alltoall, but sums are rounded to a code once more  | (M-1) (W + rounded) / M |

These send words, of a size that is known before. Two send ternary codes in streams, which are as
long as codes that are not 0 need (`ternary.compress`), and what tells their lengths. One code that
is not 0 in 60, which gradients have that are not clipped, makes a stream eleven times shorter than
the words.

| wire                 | hops                                     | received                       |
|----------------------|------------------------------------------|--------------------------------|
| sparse, few members  | as allgather, in streams                 | (M-1) the longest stream       |
| sparse, many         | as alltoall: chunks and sums, in streams | (M-1) the longest of both hops |
| sparse_bidirectional | as bidirectional, both in streams        | (M-1) the longest of both hops |

Sums of codes are codes again when they are written in balanced ternary, `ternary.sum_to_trits`: a
stream for each place, of which the higher ones are all but empty. Sums of a member's replicas
travel so, too.

All but the two bidirectional ones are lossless: the result is the sum of the replicas' codes, bit
for bit. Those are unbiased. "auto" takes the lossless wire of known size with the fewest bytes;
between processes `wire_choice` may take another lossless one in its place.

A new wire is a file here and a name in `registry`.
"""

from terngrad_tf.distribute.exchange.wires.base import Wire
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
    "Wire",
    "choose",
    "possible",
]

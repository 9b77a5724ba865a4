"""The wires by their names."""

from collections.abc import Sequence
from typing import Any

from terngrad_tf.distribute.wires.allgather import AllGather
from terngrad_tf.distribute.wires.allreduce import AllReduce
from terngrad_tf.distribute.wires.alltoall import AllToAll
from terngrad_tf.distribute.wires.bidirectional import Bidirectional
from terngrad_tf.distribute.wires.sparse import Sparse
from terngrad_tf.distribute.wires.sparse_bidirectional import SparseBidirectional

_CLASSES = {
    wire.name: wire
    for wire in (AllGather, AllToAll, AllReduce, Sparse, Bidirectional, SparseBidirectional)
}
LOSSLESS = tuple(name for name, wire in _CLASSES.items() if wire.is_lossless)
STREAMS = tuple(name for name, wire in _CLASSES.items() if not wire.has_fixed_size)
WIRES = ("auto", *_CLASSES)


def choose(name: str, sizes: Sequence[int], num_members: int, num_local: int) -> Any:
    """The `Wire` of a name; for "auto" the lossless one of fixed size with the fewest bytes.

    Args:
        name: one of `WIRES`.
        sizes: elements of each tensor.
        num_members: members of the exchange.
        num_local: replicas whose codes a member adds before it sends.
    """
    names = LOSSLESS if name == "auto" else (name,)
    wires = [_CLASSES[name](tuple(sizes), num_members, num_local) for name in names]
    if name == "auto":
        wires = [wire for wire in wires if wire.has_fixed_size]
    return min(wires, key=lambda wire: wire.received_words)

"""The wires by name."""

import functools
from collections.abc import Sequence
from typing import Any

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange.wires.allgather import AllGather
from terngrad_tf.distribute.exchange.wires.allreduce import AllReduce
from terngrad_tf.distribute.exchange.wires.alltoall import AllToAll
from terngrad_tf.distribute.exchange.wires.bidirectional import Bidirectional
from terngrad_tf.distribute.exchange.wires.sparse import Sparse
from terngrad_tf.distribute.exchange.wires.sparse_bidirectional import SparseBidirectional
from terngrad_tf.distribute.exchange.wires.sparse_sums import SparseSums
from terngrad_tf.distribute.exchange.wires.streams import NONZERO_SHARE

# The number of members decides which class of a name needs fewest bytes.
_CLASSES = {
    kinds[0].name: kinds
    for kinds in (
        (AllGather,),
        (AllToAll,),
        (AllReduce,),
        (Sparse, SparseSums),
        (Bidirectional,),
        (SparseBidirectional,),
    )
}
LOSSLESS = tuple(name for name, kinds in _CLASSES.items() if kinds[0].is_lossless)
STREAMS = tuple(name for name, kinds in _CLASSES.items() if not kinds[0].has_fixed_size)
WIRES = ("auto", *_CLASSES)


def possible(names: Sequence[str], levels: int, rotated: bool = False) -> list[str]:
    """Returns the wires that can carry codes from `-levels` to `levels`.

    Too few codes of rotated gradients are 0 for streams.
    """
    return [name for name in names if levels == 1 and not rotated or name not in STREAMS]


def choose(
    name: str,
    sizes: Sequence[int],
    num_members: int,
    num_local: int,
    levels: int = 1,
    rotated: bool = False,
) -> Any:
    """Returns a `Wire` by name; for "auto" the lossless one of fixed size with the fewest bytes.

    See `Wire`. `STREAMS` require `levels=1` and ignore `rotated`.
    """
    options = {}
    if rotated and name not in STREAMS:
        options["num_elements"] = sum(sizes)
        sizes, options["num_scales"] = _when_rotated(tuple(sizes))
    names = LOSSLESS if name == "auto" else (name,)
    wires = [
        kind(tuple(sizes), num_members, num_local, levels, **options)
        for name in names
        for kind in _CLASSES[name]
    ]
    if name == "auto":
        wires = [wire for wire in wires if wire.has_fixed_size]
    return min(wires, key=lambda wire: wire.expected_words(NONZERO_SHARE))


@functools.cache
def _when_rotated(sizes):
    """Returns the sizes of the rotated vectors of tensors, and their number of scales."""
    rotation = ternary.Rotation([[size] for size in sizes], levels=1)
    return rotation.sizes, rotation.num_blocks

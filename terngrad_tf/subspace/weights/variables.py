"""Names and shapes of weights, in the order of snapshots, subspaces and gradients."""

import math
import re
from collections.abc import Iterable

import keras

from terngrad_tf.common.arguments import shown

# Names and shapes of weights, in order.
Layout = tuple[tuple[str, tuple[int, ...]], ...]

_NUMBERED = re.compile(r"(.*?)(?:_([0-9]{1,9}))?", re.DOTALL)
_MAX_SHOWN = 3


def layout_of(variables: Iterable[keras.Variable]) -> Layout:
    """Returns the paths and shapes of variables, in order."""
    return tuple((variable.path, tuple(int(d) for d in variable.shape)) for variable in variables)


def num_weights(layout: Layout) -> int:
    """Returns the total number of elements in a layout."""
    return sum(math.prod(shape) for _, shape in layout)


def check_same_layout(
    expected: Layout, received: Layout, expected_source: str, received_source: str
) -> None:
    """Raises ValueError unless weights have the same names, shapes and order.

    Keras numbers unnamed layers across the whole process: "dense/kernel" is "dense_1/kernel" when
    built again. Names count as equal if such numbers have the same ranks. Errors name the sources.

    Example:
        >>> check_same_layout([("dense/bias", (3,))], [("dense_1/bias", (3,))], "a", "b")
    """
    if len(expected) != len(received):
        raise ValueError(
            f"{received_source} must hold the {len(expected)} tensors of {expected_source}. "
            f"Received: {len(received)} tensors"
        )
    expected_names = _ranked([name for name, _ in expected])
    received_names = _ranked([name for name, _ in received])
    differences = [
        f"{got[0]} {shown(list(got[1]))} where {want[0]} {list(want[1])} is expected"
        for want, got, a, b in zip(expected, received, expected_names, received_names, strict=True)
        if a != b or tuple(want[1]) != tuple(got[1])
    ]
    if differences:
        more = len(differences) - _MAX_SHOWN
        listed = "; ".join(differences[:_MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise ValueError(
            f"{received_source} must hold the names and shapes of {expected_source}, in the same "
            f"order. Received: {listed}"
        )


def _ranked(names):
    """Replaces each number in names with its rank among the numbers of the same word."""
    parts = [[_NUMBERED.fullmatch(part).groups() for part in name.split("/")] for name in names]
    numbers = {}
    for name in parts:
        for word, number in name:
            numbers.setdefault(word, set()).add(int(number or 0))
    ranks = {
        word: {n: rank for rank, n in enumerate(sorted(found))} for word, found in numbers.items()
    }
    return [tuple((word, ranks[word][int(number or 0)]) for word, number in name) for name in parts]

"""Which tensors are compiled one by one, and which together."""

import numpy as np

# A loop of its own for a tensor saves copying it, and costs 0.1 to 0.4 s of compilation.
LARGE = 2**20
MOST_LARGE = 16


def num_elements(shape) -> int:
    """Number of elements of a static shape."""
    return int(np.prod(shape, dtype=np.int64))


def split(shapes) -> tuple[list[int], list[int]]:
    """Positions of the large tensors and of the others, each in list order."""
    by_size = sorted(range(len(shapes)), key=lambda i: -num_elements(shapes[i]))
    large = sorted(i for i in by_size[:MOST_LARGE] if num_elements(shapes[i]) >= LARGE)
    return large, [i for i in range(len(shapes)) if i not in set(large)]


def runs(positions) -> list[list[int]]:
    """Ascending positions grouped into runs of neighbours."""
    result = []
    for position in positions:
        if result and result[-1][-1] == position - 1:
            result[-1].append(position)
        else:
            result.append([position])
    return result

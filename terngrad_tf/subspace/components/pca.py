"""Principal components of a few very long vectors, read in pieces, with NumPy only."""

from collections.abc import Callable
from typing import Any

import numpy as np

# float64 elements of one piece of all vectors. With its float32 original and its components, a
# piece takes about 100 MB.
_PIECE_ELEMENTS = 2**22

# Minimum variance of a component, relative to the first. Smaller ones are rounding noise, whose
# directions would not be orthonormal to float32's precision.
_MIN_VARIANCE = 1e-10


def principal_components(
    read: Callable[[int, np.ndarray], None],
    num_vectors: int,
    length: int,
    num_components: int,
    dtype: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Computes mean and leading principal components of vectors larger than memory.

    With X the centred vectors as rows, `X X^T = V diag(l) V^T` is a small matrix, and the rows of
    `diag(l)^(-1/2) V^T X` are the components, largest variance first. Both passes compute in
    float64. Each component's entry of largest magnitude is positive.

    Args:
        read: function of a position and a float32 array [num_vectors, count], which it fills with
            columns of all vectors.
        num_vectors: m.
        length: n, of each vector.
        num_components: k < m.
        dtype: NumPy dtype of the components.

    Returns:
        Components [k, n] in `dtype`, mean [n] in float32, and variances and fractions of the total
        variance, both float64 [k].

    Raises:
        ValueError: the vectors span fewer than `num_components` directions, or are not finite.

    Source: Sirovich, "Turbulence and the dynamics of coherent structures", 1987 (the method of
    snapshots).
    """
    width = max(1, min(length, _PIECE_ELEMENTS // num_vectors))
    buffer = np.empty(num_vectors * width, np.float32)
    mean = np.empty(length, np.float32)

    def centred(start):
        count = min(width, length - start)
        piece = buffer[: num_vectors * count].reshape(num_vectors, count)
        read(start, piece)
        exact = piece.astype(np.float64)
        centre = exact.mean(0)
        exact -= centre
        mean[start : start + count] = centre
        return exact

    gram = np.zeros((num_vectors, num_vectors))
    for start in range(0, length, width):
        with np.errstate(all="ignore"):  # the sum reveals invalid values
            piece = centred(start)
            gram += piece @ piece.T
    if not np.isfinite(gram).all():
        raise ValueError("the snapshots must be finite. Received: NaN or Inf among the weights")
    variances, vectors = np.linalg.eigh(gram)
    variances, vectors = variances[::-1], vectors[:, ::-1]
    rank = int(np.sum(variances > _MIN_VARIANCE * variances[0]))
    if rank < num_components:
        raise ValueError(
            "`num_components` must be at most the number of directions that the snapshots span, "
            f"{rank}. Received: num_components={num_components}"
        )
    weights = (vectors[:, :num_components] / np.sqrt(variances[:num_components])).T
    components = np.empty((num_components, length), dtype)
    largest = np.zeros(num_components)
    for start in range(0, length, width):
        piece = weights @ centred(start)
        components[:, start : start + piece.shape[1]] = piece
        extremes = piece[np.arange(num_components), np.abs(piece).argmax(1)]
        largest = np.where(np.abs(extremes) > np.abs(largest), extremes, largest)
    for row in np.flatnonzero(largest < 0):
        np.negative(components[row], out=components[row])
    leading = variances[:num_components]
    return components, mean, leading / (num_vectors - 1), leading / np.trace(gram)


def orthonormality_error(components: np.ndarray) -> float:
    """Returns the largest magnitude in `P P^T - I`; NaN if P [k, n] is not finite."""
    k, length = components.shape
    gram = np.zeros((k, k))
    width = max(1, _PIECE_ELEMENTS // k)
    for start in range(0, length, width):
        with np.errstate(all="ignore"):  # the result reveals invalid values
            piece = components[:, start : start + width].astype(np.float64)
            gram += piece @ piece.T
    return float(np.abs(gram - np.eye(k)).max())

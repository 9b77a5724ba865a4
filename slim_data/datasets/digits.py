"""Handwritten digits of scikit-learn, in the format of MNIST: no download needed.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine
Learning Repository, 1998 (its test set), as distributed inside scikit-learn.
"""

import numpy as np

from slim_data.common.errors import DataError
from slim_data.tfrecord import examples

LABELS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIDE = 28
SOURCE_SIDE = 8
SOURCE_MAXIMUM = 16  # brightest value in the source
TEST_EVERY = 5


def generate_examples(source, split, start=0, stop=None):
    """Yields the serialized tf.Examples of a split, in the order of the source.

    Args:
        source: not used: the images lie inside scikit-learn.
        split: "train" (1,437 images) or "test" (360).
        start: number of the first example to yield, counted from 0.
        stop: number of the example to end before; by default there is none.
    """
    del source
    images, labels = read()
    for i in split_indices(labels)[split][start:stop]:
        yield examples.build_png(enlarge(images[i]), labels[i], LABELS[labels[i]])


def identity(source):
    """Returns what the examples' content depends on: nothing that ever changes."""
    del source
    return {"source": "scikit-learn"}


def num_examples(source, split):
    """Returns how many examples `generate_examples` yields."""
    del source
    return len(split_indices(read()[1])[split])


def read():
    """Returns (images, labels): int64 [1797, 8, 8] with values 0 to 16, and int64 [1797]."""
    try:
        from sklearn import datasets  # takes a second, and only this function needs it
    except ImportError:
        raise DataError(
            "`digits` come with scikit-learn, which is not installed: pip install scikit-learn"
        ) from None
    source = datasets.load_digits()
    return source.images.astype(np.int64), source.target.astype(np.int64)


def split_indices(labels):
    """Returns {"train": indices, "test": indices}, a stratified split that never changes.

    With the examples ordered by class (ties by position), every fifth one from the first on is
    for testing: of each class a fifth, give or take one. No random generator takes part.

    Args:
        labels: int array of shape [n].
    """
    by_class = np.argsort(labels, kind="stable")
    is_test = np.zeros(len(labels), bool)
    is_test[by_class[::TEST_EVERY]] = True
    return {"train": np.flatnonzero(~is_test), "test": np.flatnonzero(is_test)}


def enlarge(image):
    """Returns an 8 x 8 image as uint8 [28, 28, 1], bilinearly interpolated (half-pixel centres).

    Target pixel i lies at source position (4 i - 5) / 14, so all weights are multiples of 1/14
    and the result, `round(255 / 16 * A image A^T)`, is computed in integers: the same bytes with
    every release of every library.

    Args:
        image: integer array of shape [8, 8] with values 0 to 16.
    """
    weights = _weights_in_14ths()
    scaled = weights @ np.asarray(image, np.int64) @ weights.T
    full = SOURCE_MAXIMUM * 14 * 14
    return ((scaled * 255 + full // 2) // full).astype(np.uint8)[..., np.newaxis]


def _weights_in_14ths():
    # Beyond the outermost centres the border pixel is repeated.
    low, fraction = np.divmod(4 * np.arange(SIDE) - 5, 14)
    weights = np.zeros((SIDE, SOURCE_SIDE), np.int64)
    for i in range(SIDE):
        weights[i, max(low[i], 0)] += 14 - fraction[i]
        weights[i, min(low[i] + 1, SOURCE_SIDE - 1)] += fraction[i]
    return weights

"""Handwritten digits of scikit-learn, in the format of MNIST; no download needed.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine
Learning Repository, 1998 (its test set), as distributed inside scikit-learn.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from slim_data.common.extras import import_extra
from slim_data.datasets.builder import DatasetBuilder, DatasetInfo
from slim_data.datasets.sources.labels_file import DIGITS
from slim_data.preprocessing import styles

SIDE = 28
SOURCE_SIDE = 8
SOURCE_MAXIMUM = 16  # brightest value in the source
TEST_EVERY = 5


class Digits(DatasetBuilder):
    """The digits inside scikit-learn, enlarged to 28 x 28 pixels."""

    info = DatasetInfo(
        name="digits",
        title="Digits",
        labels=DIGITS,
        channels=1,
        image_size=SIDE,
        splits={"train": 1437, "test": 360},
        preprocessings=styles.GREY,
    )
    has_raw_dir = False

    def fingerprint(self) -> dict[str, Any]:
        """See the base class; scikit-learn's digits never change."""
        return {"source": "scikit-learn"}

    def num_examples(self, split: str) -> int:
        """See the base class."""
        return len(split_indices(read_digits()[1])[split])

    def generate_images(
        self, split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[np.ndarray, int]]:
        """See the base class; in the order of the source."""
        images, labels = read_digits()
        for i in split_indices(labels)[split][start:stop]:
            yield enlarge(images[i]), int(labels[i])


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns (images, labels): int64 [1797, 8, 8] with values 0 to 16, and int64 [1797]."""
    source = import_extra("sklearn.datasets").load_digits()
    return source.images.astype(np.int64), source.target.astype(np.int64)


def split_indices(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Returns {"train": indices, "test": indices}, a fixed stratified split of int [n] labels.

    With the examples ordered by class (ties by position), every fifth, starting with the first, is
    a test example. Nothing is random.
    """
    by_class = np.argsort(labels, kind="stable")
    is_test = np.zeros(len(labels), bool)
    is_test[by_class[::TEST_EVERY]] = True
    return {"train": np.flatnonzero(~is_test), "test": np.flatnonzero(is_test)}


def enlarge(image: np.ndarray) -> np.ndarray:
    """Returns an 8 x 8 image as uint8 [28, 28, 1], bilinearly interpolated (half-pixel centres).

    Target pixel i lies at source position (4 i - 5) / 14, so all weights are multiples of 1/14. The
    result, `round(255 / 16 * A image A^T)`, is computed in integers: its bytes are the same with
    every release of every library.

    Args:
        image: integers 0 to 16, [8, 8].
    """
    weights = _weights_in_14ths()
    scaled = weights @ np.asarray(image, np.int64) @ weights.T
    full = SOURCE_MAXIMUM * 14 * 14
    return ((scaled * 255 + full // 2) // full).astype(np.uint8)[..., np.newaxis]


def _weights_in_14ths():
    # The border pixel is repeated beyond the outermost centres.
    low, fraction = np.divmod(4 * np.arange(SIDE) - 5, 14)
    weights = np.zeros((SIDE, SOURCE_SIDE), np.int64)
    for i in range(SIDE):
        weights[i, max(low[i], 0)] += 14 - fraction[i]
        weights[i, min(low[i] + 1, SOURCE_SIDE - 1)] += fraction[i]
    return weights

"""Interface of the styles of preprocessing, one per module of this package."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Converts images to a network's input.

    If a data set's images have one size, styles work on batches: `images` is uint8 [n, height,
    width, channels], `random` float32 [n, num_random_values], uniform in [0, 1), and the result [n,
    size, size, channels].

    Otherwise, styles work on single images: `images` is an `EncodedImage`, `random` a seed, int64
    [2], and the result [size, size, 3].

    Results are float32 and depend only on the arguments.

    Args:
        evaluate: function of (images, size in pixels).
        augment: function of (images, size, random), for training; None: as `evaluate`.
        num_random_values: per image, for `augment` of batches.
        largest_size: maximum `size` in pixels; None: no limit.
    """

    evaluate: Callable[[Any, int], Any]
    augment: Callable[[Any, int, Any], Any] | None = None
    num_random_values: int = 0
    largest_size: int | None = None

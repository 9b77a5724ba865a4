"""Interface of the styles of preprocessing, one per module of this package."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Converts images to a network's input.

    If all images of a data set have one size, its styles work on batches: `images` is a uint8
    tensor of shape [n, height, width, channels], `random` a float32 tensor of shape
    [n, num_random_values], uniform in [0, 1), and the result has the shape
    [n, size, size, channels].

    Otherwise, styles work on single images: `images` is an `EncodedImage`, `random` a seed, an
    int64 tensor of shape [2], and the result has the shape [size, size, 3].

    Results are float32 and depend only on the arguments.

    Args:
        evaluate: function of (images, size); `size` is height and width of the result in pixels.
        augment: function of (images, size, random), for training; None: as `evaluate`.
        num_random_values: number of random values per image for `augment` of batches.
        largest_size: maximum `size` in pixels; None: no limit.
    """

    evaluate: Callable[[Any, int], Any]
    augment: Callable[[Any, int, Any], Any] | None = None
    num_random_values: int = 0
    largest_size: int | None = None

"""What a style of preprocessing is; each has a module of its own, beside this one."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How images are made ready for a network.

    Where all images of a data set have one size, its styles work on whole batches:
    `images` is a uint8 tensor of shape [n, height, width, channels], `random` a float32 tensor of
    shape [n, num_random_values], uniform in [0, 1), and the result has the shape
    [n, size, size, channels].

    Otherwise they work on one image at a time: `images` is an `EncodedImage`, `random` a seed, an
    int64 tensor of shape [2], and the result has the shape [size, size, 3].

    Results are float32. They depend on the arguments alone.

    Args:
        evaluate: function of (images, size), `size` being the pixels of a side of the result.
        augment: function of (images, size, random), for training; None where training images are
            made ready as all others are.
        num_random_values: random numbers that `augment` needs for an image of a batch.
        largest_size: largest `size` in pixels; None where there is no limit.
    """

    evaluate: Callable[[Any, int], Any]
    augment: Callable[[Any, int, Any], Any] | None = None
    num_random_values: int = 0
    largest_size: int | None = None

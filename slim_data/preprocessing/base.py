"""What a style of preprocessing is; each style has a module of its own, `*_preprocessing`."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How images are made ready for a network.

    Where all images of a data set have one size, its styles work on whole batches:
    `images` is a uint8 tensor of shape [n, height, width, channels], `random` a float32 tensor of
    shape [n, num_draws], uniform in [0, 1), and the result has the shape [n, size, size, channels].

    Otherwise they work on one image at a time: `images` is a `Photo`, `random` a seed, an int64
    tensor of shape [2], and the result has the shape [size, size, 3].

    Results are float32. They depend on the arguments alone.

    Args:
        evaluate: function of (images, size).
        distort: function of (images, size, random), for training; None where training images are
            made ready as all others are.
        num_draws: random numbers that `distort` needs for an image of a batch.
        largest_size: largest `size` in pixels; None where there is no limit.
    """

    evaluate: Callable
    distort: Callable | None = None
    num_draws: int = 0
    largest_size: int | None = None

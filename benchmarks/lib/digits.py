"""scikit-learn's handwritten digits as arrays, for benchmarks."""

import numpy as np

from slim_data.datasets import digits


def load(image_size):
    """Reads the 1,797 digits: 1,437 for training, 360 for testing.

    Args:
        image_size: 8, the size of the images, or 28, enlarged.

    Returns:
        {"train": (images, labels), "test": ...}: images float32 in [-1, 1] with one channel, labels
        int32.
    """
    images, labels = digits.read_digits()
    if image_size == digits.SOURCE_SIDE:
        images = images[..., np.newaxis] / digits.SOURCE_MAXIMUM
    elif image_size == digits.SIDE:
        images = np.stack([digits.enlarge(image) for image in images]) / 255
    else:
        raise ValueError(f"`image_size` must be 8 or 28. Received: image_size={image_size}")
    images = (2 * images - 1).astype("float32")
    labels = labels.astype("int32")
    return {
        split: (images[indices], labels[indices])
        for split, indices in digits.split_indices(labels).items()
    }

"""The common workload of the benchmark of time to accuracy, independent of any framework.

A LeNet without padding and with a wide dense layer: 1,686,508 weights. All modes share initial
weights, order of images and learning rates.
"""

import itertools
import math

import numpy as np

FILTERS = (20, 50)
KERNEL = 5
HIDDEN = 2048
CLASSES = 10
# Features of 28x28 images after two convolutions, each with 2x2 pooling.
FEATURES = 4 * 4 * FILTERS[1]
SHAPES = (
    *((KERNEL, KERNEL, 1, FILTERS[0]), (FILTERS[0],)),
    *((KERNEL, KERNEL, *FILTERS), (FILTERS[1],)),
    *((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)),
)
BATCH_SIZE = 32
MOMENTUM = 0.9
# AdamW's options, where Keras' and PyTorch's defaults differ.
WEIGHT_DECAY, EPSILON = 0.004, 1e-7
WARM_UP = 32
# PyTorch's DiLoCo, with Nesterov momentum, as our DiLoCo with 32 steps.
OUTER_RATE, OUTER_MOMENTUM = 1.0, 0.5
HELD_OUT = 5000
# Plain Keras in one process on the images of all workers.
ALONE = "keras"


def initial_weights(seed):
    """Returns He-normal kernels and zero biases, as arrays of `SHAPES`; inputs before outputs."""
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(s) * math.sqrt(2 / math.prod(s[:-1]))).astype("float32")
        if len(s) > 1
        else np.zeros(s, "float32")
        for s in SHAPES
    ]


def learning_rate(highest, step, num_steps):
    """Returns a step's rate: up linearly over `WARM_UP` steps, then down half a cosine to 0."""
    if step < WARM_UP:
        return highest * (step + 1) / WARM_UP
    return highest * (1 + math.cos(math.pi * (step - WARM_UP) / (num_steps - WARM_UP))) / 2


def momentum(rate, last_rate):
    """Returns the momentum with which PyTorch's SGD takes the step of Keras' SGD.

    Keras adds up `rate * gradient`, PyTorch gradients, which it multiplies by the step's rate.

    Args:
        last_rate: the rate of the step before; None in the first step.
    """
    return MOMENTUM if last_rate is None else MOMENTUM * last_rate / rate


def batches(num_images, seed, worker, num_workers, num_shares=1):
    """Yields endlessly the positions of a worker's images per step.

    Steps go through the images in a random order, which differs in each pass.

    Args:
        seed: selects the order.
        num_shares: each worker takes this many shares of `BATCH_SIZE` images.
    """
    size = BATCH_SIZE * num_shares
    batch = size * num_workers
    for epoch in itertools.count():
        order = np.random.default_rng([seed, epoch]).permutation(num_images)
        for first in range(0, num_images - batch + 1, batch):
            own = first + worker * size
            yield order[own : own + size]

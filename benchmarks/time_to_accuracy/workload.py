"""What all modes of the benchmark of time to accuracy train, without any framework.

A LeNet without padding whose dense layer is wide: 1,686,508 weights. Initial weights, the order of
images and the learning rate's course are the same for all modes.
"""

import itertools
import math

import numpy as np

FILTERS = (20, 50)
KERNEL = 5
HIDDEN = 2048
CLASSES = 10
# Of 28x28 images, after two convolutions, each with 2x2 pooling.
FEATURES = 4 * 4 * FILTERS[1]
SHAPES = (
    *((KERNEL, KERNEL, 1, FILTERS[0]), (FILTERS[0],)),
    *((KERNEL, KERNEL, *FILTERS), (FILTERS[1],)),
    *((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)),
)
BATCH_SIZE = 32
MOMENTUM = 0.9
WARM_UP = 32
# Of PyTorch's DiLoCo, as the default of ours with 32 steps: what exchanged changes are applied by,
# with Nesterov momentum.
OUTER_RATE, OUTER_MOMENTUM = 1.0, 0.5
HELD_OUT = 5000


def initial_weights(seed):
    """He-normal kernels and biases of 0, as arrays of `SHAPES`: layers' inputs before outputs."""
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(s) * math.sqrt(2 / math.prod(s[:-1]))).astype("float32")
        if len(s) > 1
        else np.zeros(s, "float32")
        for s in SHAPES
    ]


def learning_rate(highest, step, num_steps):
    """The rate of a step: up in a line for `WARM_UP` steps, then down along half a cosine to 0."""
    if step < WARM_UP:
        return highest * step / WARM_UP
    return highest * (1 + math.cos(math.pi * (step - WARM_UP) / (num_steps - WARM_UP))) / 2


def batches(num_images, seed, worker, num_workers):
    """Images of a worker's batch in each step, without end: positions, int64 [BATCH_SIZE].

    Steps go through the images in a random order, which is another one in each pass.
    """
    batch = BATCH_SIZE * num_workers
    for epoch in itertools.count():
        order = np.random.default_rng([seed, epoch]).permutation(num_images)
        for first in range(0, num_images - batch + 1, batch):
            own = first + worker * BATCH_SIZE
            yield order[own : own + BATCH_SIZE]

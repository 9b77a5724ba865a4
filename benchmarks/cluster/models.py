"""The two workloads of the cluster benchmark, independent of any framework."""

# AlexNet of two towers, 1,001 classes: 60,969,321 elements.
ALEXNET_SHAPES = (
    *((11, 11, 3, 48), (48,)) * 2,
    *((5, 5, 48, 128), (128,)) * 2,
    *((3, 3, 256, 192), (192,)) * 2,
    *((3, 3, 192, 192), (192,)) * 2,
    *((3, 3, 192, 128), (128,)) * 2,
    *((9216, 4096), (4096,), (4096, 4096), (4096,), (4096, 1001), (1001,)),
)

# digits: an 8x8 image, 3x3 convolution with 32 filters, batch norm, dense 1024, dense 10: 2.1
# million trainable elements. alexnet: gradients of its shapes, from a loss that is linear in the
# weights, to measure the exchange only.
MODELS = ("digits", "alexnet")
IMAGE = 8
FILTERS = 32
HIDDEN = 1024
CLASSES = 10

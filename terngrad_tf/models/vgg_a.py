"""VGG of 11 layers (configuration A), with batch normalization."""

import functools

from terngrad_tf.models import vgg

IMAGE_SIZE = vgg.IMAGE_SIZE
CHANNELS = vgg.CHANNELS
PREPROCESSING = vgg.PREPROCESSING

_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))

# 1001 classes and 224x224x3 images: 132,867,433 weights in 22 variables.
build = functools.partial(vgg.build, "vgg_a", _STAGES)

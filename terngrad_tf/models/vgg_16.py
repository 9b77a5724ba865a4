"""VGG of 16 layers (configuration D), with batch normalization."""

import functools

from terngrad_tf.models import vgg

IMAGE_SIZE = vgg.IMAGE_SIZE
CHANNELS = vgg.CHANNELS
PREPROCESSING = vgg.PREPROCESSING

_STAGES = ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3)

# 1001 classes and 224x224x3 images: 138,361,641 weights in 32 variables.
build = functools.partial(vgg.build, "vgg_16", _STAGES)

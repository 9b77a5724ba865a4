"""ResNet of 20 layers for CIFAR-10."""

import functools

from terngrad_tf.models import cifar_resnet

IMAGE_SIZE = cifar_resnet.IMAGE_SIZE
CHANNELS = cifar_resnet.CHANNELS
PREPROCESSING = cifar_resnet.PREPROCESSING

# 10 classes and 3 channels: 269,722 weights in 59 variables.
build = functools.partial(cifar_resnet.build, "resnet_20", 3)

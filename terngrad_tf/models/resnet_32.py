"""ResNet of 32 layers for CIFAR-10."""

import functools

from terngrad_tf.models import cifar_resnet

IMAGE_SIZE = cifar_resnet.IMAGE_SIZE
CHANNELS = cifar_resnet.CHANNELS
PREPROCESSING = cifar_resnet.PREPROCESSING

# 10 classes and 3 channels: 464,154 weights in 95 variables.
build = functools.partial(cifar_resnet.build, "resnet_32", 5)

"""Styles by name for each kind of images, the default first."""

from slim_data.preprocessing import alexnet, cifar_resnet, cifarnet, inception, lenet, resnet, vgg

GREY = {"lenet": lenet.PREPROCESSING}
SMALL = {"cifarnet": cifarnet.PREPROCESSING, "resnet": cifar_resnet.PREPROCESSING}
PHOTO = {
    "inception": inception.PREPROCESSING,
    "alexnet": alexnet.PREPROCESSING,
    "vgg": vgg.PREPROCESSING,
    "resnet": resnet.PREPROCESSING,
}

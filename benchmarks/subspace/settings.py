"""What the study of phase 2 trains, and for how long."""

import dataclasses

NUM_SNAPSHOTS = 20  # of which a mean and components are taken, the last ones
NUM_COMPONENTS = 16
FULL = 0  # stands for all examples in a batch


@dataclasses.dataclass(frozen=True)
class PhaseTwo:
    """A variant of training in the subspace.

    Args:
        from_average: whether it starts at the moving average and not at the last weights.
        batch_size: images a step; `FULL` takes all.
        sgd: P-SGD, at the rate of phase 1 that falls to 0, instead of P-BFGS.
    """

    from_average: bool = False
    batch_size: int = 512
    sgd: bool = False


PHASE_TWO = {
    "P-BFGS from the last weights": PhaseTwo(),
    "P-BFGS from the moving average": PhaseTwo(from_average=True),
    "P-BFGS, full batch, from the moving average": PhaseTwo(from_average=True, batch_size=FULL),
    "P-SGD from the last weights": PhaseTwo(batch_size=128, sgd=True),
    "P-SGD from the moving average": PhaseTwo(from_average=True, batch_size=128, sgd=True),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """How a network is trained in phase 1, and what is tried after it.

    Args:
        title: for the tables.
        net: name of the network.
        image_size: height and width of the images in pixels.
        num_examples: training images, the first of the data set; None takes all of the digits.
        batch_size: images a step.
        epochs: passes through the training images.
        learning_rate: constant through phase 1.
        weight_decay: L2 factor of the kernels, in both phases.
        snapshot_every: steps from one snapshot to the next.
        lengths: epochs after phase 1 at which every way is tested.
        phase_two: names of the variants of training in the subspace.
    """

    title: str
    net: str
    image_size: int
    num_examples: int | None
    batch_size: int
    epochs: int
    learning_rate: float
    weight_decay: float
    snapshot_every: int
    lengths: tuple = (1, 5)
    phase_two: tuple = tuple(PHASE_TWO)


_LENET = ("lenet", 28)
TASKS = {
    "fashion": Task(
        *("LeNet, 10,000 images of Fashion-MNIST", *_LENET, 10000, 128, 6, 0.02, 5e-4, 8),
        lengths=(2,),
        # A step of all images takes more memory than it is worth.
        phase_two=tuple(name for name, v in PHASE_TWO.items() if v.batch_size != FULL),
    ),
    "few": Task(*("LeNet, 2,000 images of Fashion-MNIST", *_LENET, 2000, 64, 10, 0.02, 5e-4, 6)),
    "digits": Task("LeNet, digits", *_LENET, None, 64, 6, 0.02, 5e-4, 3),
    "digits_resnet": Task("ResNet-20, digits", "resnet_20", 8, None, 64, 6, 0.1, 1e-4, 3),
}

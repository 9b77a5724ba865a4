"""Networks, data and lengths of the study of phase 2."""

import dataclasses

NUM_SNAPSHOTS = 20  # the last ones, for the mean and the components
NUM_COMPONENTS = 16
FULL = 0  # all examples in a batch


@dataclasses.dataclass(frozen=True)
class PhaseTwo:
    """A variant of training in the subspace.

    Args:
        from_average: True to start at the moving average, False at the final weights.
        batch_size: images per step; `FULL` takes all.
        sgd: True for P-SGD, at phase 1's rate falling to 0; False for P-BFGS.
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
    """Phase 1 of a network, and the ways to continue.

    Args:
        num_examples: number of training images, the first of the data set; None takes all digits.
        learning_rate: constant through phase 1.
        weight_decay: L2 factor of the kernels, in both phases.
        snapshot_every: steps from one snapshot to the next.
        lengths: epochs after phase 1 at which every way is tested.
        phase_two: names in `PHASE_TWO`.
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
        # A step on all images takes too much memory.
        phase_two=tuple(name for name, v in PHASE_TWO.items() if v.batch_size != FULL),
    ),
    "few": Task(*("LeNet, 2,000 images of Fashion-MNIST", *_LENET, 2000, 64, 10, 0.02, 5e-4, 6)),
    "digits": Task("LeNet, digits", *_LENET, None, 64, 6, 0.02, 5e-4, 3),
    "digits_resnet": Task("ResNet-20, digits", "resnet_20", 8, None, 64, 6, 0.1, 1e-4, 3),
}

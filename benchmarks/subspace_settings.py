"""What the study of phase 2 trains, and for how long."""

import dataclasses

BATCH_SIZE = 64
SNAPSHOT_EVERY = 3  # steps
LENGTHS = (1, 2, 5)  # epochs after phase 1
FULL = 0  # stands for all examples in a batch


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a network is trained in phase 1.

    Args:
        image_size: height and width of the images in pixels.
        epochs: passes through the training images.
        learning_rate: constant through phase 1.
        weight_decay: L2 factor of the kernels, in both phases.
        subspace_rate: learning rate of P-SGD at its first step.
    """

    image_size: int
    epochs: int
    learning_rate: float
    weight_decay: float
    subspace_rate: float


NETS = {
    "lenet": Settings(28, 6, learning_rate=0.02, weight_decay=5e-4, subspace_rate=0.02),
    "resnet_20": Settings(8, 6, learning_rate=0.1, weight_decay=1e-4, subspace_rate=0.1),
}


@dataclasses.dataclass(frozen=True)
class PhaseTwo:
    """A variant of training in the subspace.

    Args:
        num_snapshots: of phase 1, the last ones.
        num_components: dimension of the subspace.
        batch_size: images a step; `FULL` takes all.
        from_mean: whether to start at the mean of the snapshots and not at the last weights.
        sgd: P-SGD instead of P-BFGS.
    """

    num_snapshots: int = 20
    num_components: int = 16
    batch_size: int = FULL
    from_mean: bool = False
    sgd: bool = False


PHASE_TWO = {
    "P-BFGS, full batch": PhaseTwo(),
    "P-BFGS, batch 512": PhaseTwo(batch_size=512),
    "P-BFGS, 40 snapshots, k = 32": PhaseTwo(num_snapshots=40, num_components=32),
    "P-BFGS from the mean": PhaseTwo(from_mean=True),
    "P-SGD, batch 64": PhaseTwo(batch_size=BATCH_SIZE, sgd=True),
}

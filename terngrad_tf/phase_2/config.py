"""Configuration of training in a subspace."""

import dataclasses
import math
import os
from typing import Any, TypeVar

from terngrad_tf.clip_factors import default_factor
from terngrad_tf.common.options import redeclared
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import REQUIRED, Config, configuration, harmless, option
from terngrad_tf.training.configs.data_config import DATASETS, TrainingDataConfig
from terngrad_tf.training.configs.run_config import CheckpointConfig, GradientConfig, RunConfig
from terngrad_tf.training.errors import UserError

_Self = TypeVar("_Self", bound="SubspaceConfig")

STARTS = ("last", "average", "mean")
_PART = checks.Range(0, 1, above=True, below=True)
# Options of `SubspaceOptimizerConfig` by optimizer.
OPTIMIZERS = {
    "bfgs": ("rho", "sigma", "alpha", "gamma", "residual_every"),
    "sgd": ("learning_rate", "momentum"),
}


@configuration
class SubspaceDataConfig(TrainingDataConfig):
    """Records to train on in a subspace, by default the initial run's."""

    dataset_name: str | None = option(None, f"Data set: {DATASETS}. Default: the run's.")
    batch_size: int = option(
        512,
        "Images per step over all replicas together; divisible by --num_nodes. Large batches help.",
        checks.BATCH,
    )


@configuration
class SubspaceGradientConfig(GradientConfig):
    """Exchange of gradients outside of the subspace."""

    grad_bits: int = redeclared(
        GradientConfig,
        "grad_bits",
        1,
        text="Bits of gradients outside of the subspace, for --alpha above 0. 1: ternary; 2: codes "
        "of five values; 3 to 8: codes of this number of bits; 32: float. Inside of the subspace "
        "replicas always send one number per component.",
    )
    clip_factor: float | str = redeclared(
        GradientConfig,
        "clip_factor",
        default_factor(levels=1),
        text="For --grad_bits below 32: clip gradients at this number of standard deviations; 0: "
        "no clipping; auto: weigh the loss of clipping against the noise of rounding.",
    )


def _subspace_file(name, value):
    checks.path(name, value)
    if value and not os.fspath(value).endswith((".npy", ".safetensors")):
        raise UserError(f"`{name}` must end in .npy or .safetensors. Received: {name}={value!r}")


@configuration
class BasisConfig(Config):
    """The weights to start from and the directions to move in."""

    pretrained_weight_path: str = option(
        REQUIRED,
        "Weights to start from: the --train_dir of a run (its newest checkpoint), one of its "
        "checkpoints, or one of its weight snapshots.",
        identity=False,  # the weights are compared, not their path
        shared=False,
    )
    pca_mat_path: str = option(
        "",
        "File of the subspace, .safetensors or .npy. A missing file is computed from the "
        "snapshots and written. Default: subspace.safetensors in --train_dir.",
        _subspace_file,
        identity=False,  # the subspaces' fingerprints are compared
        shared=False,
    )
    weight_load_dir: str = option(
        "",
        "Folder with the weight snapshots, relative to the present folder or, if missing there, "
        "to the parent of the run to start from. Default: checkpoint_pca of that run.",
        checks.path,
        identity=False,  # the subspaces' fingerprints are compared
        shared=False,
    )
    timeout: float = option(
        1800.0,
        "Seconds that the other workers of a cluster wait for the chief's subspace.",
        checks.SECONDS,
        identity=False,
    )
    n_components: int | None = option(
        None,
        "Dimension of the subspace, below the number of snapshots. Default: the file's, or for a "
        "new subspace 32, or fewer if there are fewer than 33 snapshots.",
        checks.integers(1, 2**16),
    )
    start_at: str | None = option(
        None,
        "last: start at the weights of --pretrained_weight_path; average: at their moving average "
        "in the run; mean: at the mean of the snapshots. Default: average, or last if the run has "
        "no average.",
        checks.one_of(STARTS),
    )
    shard_basis: bool = option(
        False,
        "Let each worker process of a cluster hold only a part of the basis, if the whole does "
        "not fit. Gradients then travel as float32.",
        before=False,
    )

    def __post_init__(self) -> None:
        if not self.pretrained_weight_path:
            raise UserError(
                "`pretrained_weight_path` must be a run's folder, a checkpoint or a weight "
                "snapshot. Received: pretrained_weight_path=''"
            )
        super().__post_init__()


def _of(optimizer):
    return lambda config: config.name == optimizer


@configuration
class SubspaceOptimizerConfig(Config):
    """`SubspaceBFGS` or `SubspaceSGD`."""

    name: str = option(
        "bfgs",
        "bfgs (quasi-Newton with a line search) or sgd (gradient descent with momentum), both "
        "inside of the subspace.",
        checks.one_of(OPTIMIZERS),
        name="optimizer",
    )
    rho: float = option(
        0.55, "For bfgs: factor between the lengths tried.", _PART, identity=_of("bfgs")
    )
    sigma: float = option(
        0.4,
        "For bfgs: part of the linear decrease that a step must reach.",
        _PART,
        identity=_of("bfgs"),
    )
    # As in MindSpore Boost.
    alpha: float = option(
        0.001,
        "For bfgs: step length outside of the subspace; 0: none.",
        checks.FACTOR,
        identity=_of("bfgs"),
    )
    gamma: float = option(
        0.9,
        "For bfgs: momentum outside of the subspace.",
        checks.Range(0, 1, below=True),
        identity=_of("bfgs"),
    )
    residual_every: int = option(
        1,
        "For bfgs: steps from one step outside of the subspace to the next.",
        checks.COUNT,
        identity=_of("bfgs"),
    )
    learning_rate: float | None = option(
        None,
        "For sgd: rate at step 0; it falls in a line to 0. Default: --initial_learning_rate of the "
        "run to start from.",
        checks.FACTOR,
        identity=_of("sgd"),
    )
    momentum: float = option(
        0.9, "For sgd: momentum.", checks.Range(0, 1, below=True), identity=_of("sgd")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for optimizer, names in OPTIMIZERS.items():
            if optimizer != self.name:
                self.refuse_given(names, f"with optimizer={self.name}; it is for {optimizer}")
        if not self.alpha:
            why = "with alpha=0, which takes no steps outside of the subspace"
            self.refuse_given(("gamma", "residual_every"), why)

    def identity(self) -> dict[str, Any]:
        """Returns `Config.identity()` with optimizer names that differ from other runs'."""
        return super().identity() | {"optimizer": f"subspace_{self.name}"}

    def arguments(self) -> dict[str, Any]:
        """Returns the optimizer's arguments."""
        return {name: getattr(self, name) for name in OPTIMIZERS[self.name]}


@configuration
@harmless
class SubspaceCheckpointConfig(CheckpointConfig):
    """When training in a subspace is saved; `with_steps` sets the steps per epoch."""

    max_to_keep: int = option(2, "Newest checkpoints kept.", checks.COUNT)


@configuration
class SubspaceConfig(RunConfig):
    """Configuration of `train_in_subspace`; the run to start from determines the network."""

    seed: int = option(1, "Fixes order of the data and rounding.", checks.SEED)
    max_steps: int = option(0, "Steps; follows from the epochs.", checks.COUNT_OR_0, identity=False)
    epochs: int = option(
        2, "Passes through the data; 0 only evaluates the start.", checks.integers(0, 10**6)
    )
    basis: BasisConfig
    data: SubspaceDataConfig
    optimizer: SubspaceOptimizerConfig = SubspaceOptimizerConfig()
    gradients: SubspaceGradientConfig = SubspaceGradientConfig()
    checkpoints: SubspaceCheckpointConfig = SubspaceCheckpointConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer.name != "bfgs" or not self.optimizer.alpha:
            names = [field.name for field in dataclasses.fields(self.gradients)]
            why = "without steps outside of the subspace; --optimizer=bfgs with --alpha takes them"
            self.gradients.refuse_given(names, why)

    def with_steps(self: _Self, num_examples: int) -> _Self:
        """Returns the configuration with the steps of its epochs, saved once per epoch."""
        save_iter = math.ceil(num_examples / self.data.batch_size)
        return super().with_steps(num_examples).changed(save_iter=save_iter)

"""What training in a subspace is told, checked once at the door."""

import dataclasses

from terngrad_tf.training import checks
from terngrad_tf.training.errors import UserError

OPTIMIZERS = ("bfgs", "sgd")

_PART = checks.Range(0, 1, above=True, below=True)
_RANGES = {
    "timeout": checks.SECONDS,
    "n_components": checks.integers(1, 2**16),
    "rho": _PART,
    "sigma": _PART,
    "alpha": checks.FACTOR,
    "gamma": checks.Range(0, 1, below=True),
    "residual_every": checks.COUNT,
    "learning_rate": checks.FACTOR,
    "momentum": checks.Range(0, 1, below=True),
    "epochs": checks.integers(1, 10**6),
    "batch_size": checks.BATCH,
    "seed": checks.SEED,
    "num_nodes": checks.integers(1, checks.WORKERS.most, also=-1),
    "num_gpus": checks.integers(0, checks.WORKERS.most),
    "grad_bits": checks.GRAD_BITS,
    "clip_factor": checks.FACTOR,
    "num_readers": checks.THREADS,
    "num_preprocess_threads": checks.THREADS,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubspaceOptions:
    """Options of `train_in_subspace`.

    Args:
        train_dir: folder for checkpoints and TensorBoard logs; holding the same run, it is resumed.
        data_dir: folder with the TFRecords.
        pretrained_weight_path: what to start from: a run's folder (its newest checkpoint), a
            checkpoint of it, or one of its weight snapshots.
        pca_mat_path: file of the subspace, `.safetensors` or `.npy`. Where it is missing, it is
            computed from the snapshots and written. Default "": subspace.safetensors in train_dir.
        weight_load_dir: folder of the weight snapshots. Default "": that of the run to start from.
        timeout: seconds that the other workers of a cluster wait for the chief's subspace. Default
            1800.
        n_components: dimension of the subspace. Default: that of the file, or 32.
        start_at_mean: whether to start from the mean of the snapshots. Default False.
        optimizer: "bfgs" (`SubspaceBFGS`) or "sgd" (`SubspaceSGD`). Default "bfgs".
        rho: factor between trial steps, for "bfgs". Default 0.55.
        sigma: part of the linear decrease a step must reach, for "bfgs". Default 0.4.
        alpha: step length outside of the subspace, for "bfgs"; 0: none. Default 0.001, as in
            MindSpore Boost.
        gamma: momentum outside of the subspace, for "bfgs". Default 0.9.
        residual_every: steps from one step outside of the subspace to the next, for "bfgs". Default
            1.
        shard_basis: whether the processes of a cluster divide the basis among them, for one that
            does not fit. Default False.
        learning_rate: rate at step 0, for "sgd"; it falls in a line to 0. Default: that of the run
            to start from.
        momentum: for "sgd". Default 0.9.
        epochs: passes through the data. Default 2.
        batch_size: images per step over all workers together, divisible by their number. Default
            512.
        dataset_name: name of the data set. Default None: that of the run to start from.
        subset: its part to train on. Default "train".
        seed: fixes the order of the data and rounding. Default 1.
        num_nodes: number of workers, in a cluster of each process. Default -1: num_gpus, or 1.
        num_gpus: number of GPUs the workers run on, 0 for the CPU. Default: all there are.
        grad_bits: 1 for ternary gradients outside of the subspace (alpha above 0), 32 for float.
            Default 1.
        clip_factor: standard deviations at which these are clipped; 0: no clipping. Default 2.5.
        num_readers: files read in parallel. Default 4.
        num_preprocess_threads: images decoded at once. Default: twice the CPU cores.
        skip_corrupt_records: whether to leave out records that cannot be read. Default False.

    Raises:
        UserError: a number outside its range.
    """

    train_dir: str
    data_dir: str
    pretrained_weight_path: str
    pca_mat_path: str = ""
    weight_load_dir: str = ""
    timeout: float = 1800.0
    n_components: int | None = None
    start_at_mean: bool = False
    optimizer: str = "bfgs"
    rho: float = 0.55
    sigma: float = 0.4
    alpha: float = 0.001
    gamma: float = 0.9
    residual_every: int = 1
    shard_basis: bool = False
    learning_rate: float | None = None
    momentum: float = 0.9
    epochs: int = 2
    batch_size: int = 512
    dataset_name: str | None = None
    subset: str = "train"
    seed: int = 1
    num_nodes: int = -1
    num_gpus: int | None = None
    grad_bits: int = 1
    clip_factor: float = 2.5
    num_readers: int = 4
    num_preprocess_threads: int | None = None
    skip_corrupt_records: bool = False

    def __post_init__(self):
        if not self.pretrained_weight_path:
            raise UserError(
                "`pretrained_weight_path` must be a run's folder, a checkpoint or a weight "
                "snapshot. Received: pretrained_weight_path=''"
            )
        checks.ranges(self, _RANGES)
        checks.folder("train_dir", self.train_dir)
        for name in ("data_dir", "pca_mat_path", "weight_load_dir"):
            checks.path(name, getattr(self, name))
        if self.optimizer not in OPTIMIZERS:
            raise UserError(
                f"`optimizer` must be one of {', '.join(OPTIMIZERS)}. "
                f"Received: optimizer={self.optimizer!r}"
            )

    def facts(self):
        """Dict of the options that all processes of a cluster must share."""
        # The chief alone looks at the files of the run to start from.
        own = ("train_dir", "data_dir", "num_gpus", "num_preprocess_threads")
        own += ("pretrained_weight_path", "pca_mat_path", "weight_load_dir")
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in own}

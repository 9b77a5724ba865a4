"""Configuration of a training run: `TrainConfig` and its parts."""

import dataclasses
import math
import typing
from collections.abc import Callable
from typing import Any

from terngrad_tf.common.arguments import as_fraction
from terngrad_tf.common.options import redeclared
from terngrad_tf.distribute.local_sgd.outer_momentum import default_outer_momentum
from terngrad_tf.quantization_options import QuantizationOptions
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import REQUIRED, Config, configuration, harmless, option
from terngrad_tf.training.configs.data_config import TrainingDataConfig
from terngrad_tf.training.configs.model_config import ModelConfig, OptimizerConfig
from terngrad_tf.training.errors import UserError, require

if typing.TYPE_CHECKING:
    from terngrad_tf.distribute.exchange.quantization import Quantization

_Self = typing.TypeVar("_Self", bound="RunConfig")


# If time or epochs schedule events, a recent record must exist.
_STEPS_BETWEEN_RECORDS = 30


@configuration
class GradientConfig(Config, QuantizationOptions):
    """How gradients travel. The defaults are from TernGrad's programs."""

    grad_bits: int = redeclared(QuantizationOptions, "grad_bits", 32, before=32)
    rotate: bool = redeclared(
        QuantizationOptions,
        "rotate",
        False,
        text="Rotate gradients before rounding. Rotation reduces the error at the same bytes, "
        "makes clipping unnecessary and is the default of the library's TernGradStrategy. The "
        "programs' default, without rotation, is the rule of TernGrad's paper.",
    )
    clip_factor: float | str = redeclared(
        QuantizationOptions,
        "clip_factor",
        0.0,
        text="Clip gradients at this number of standard deviations before rounding; 0: no "
        "clipping; auto: weigh the loss of clipping against the noise of rounding.",
        before=0.0,
    )
    quantize_logits: bool = redeclared(QuantizationOptions, "quantize_logits", False)
    floating_grad_epoch: int = option(
        0,
        "Period in epochs: the last epoch of each period has float gradients; 0: none has.",
        checks.COUNT_OR_0,
        before=0,
    )
    wire: str = option(
        "auto",
        "How gradients' codes travel between hosts: allgather, alltoall or allreduce, in words; "
        "sparse, for ternary codes, in bits if few are not 0 (see --clip_factor=0); bidirectional "
        "or sparse_bidirectional, which also round the sum; auto: the one in words with the fewest "
        "bytes, or another or sparse if it should be faster on the measured links. "
        "--async_training allows auto, in words, and sparse. The sparse wires exclude "
        "--grad_bits from 2 to 8 and --rotate.",
        before="auto",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rotate:
            why = "with `rotate`: rotated gradients have scales of their own"
            self.refuse_given(("clip_factor", "bits_per_element"), why)

    def quantization(
        self, seed: int, float_steps: Callable[[Any], Any] | None = None
    ) -> "Quantization":
        """Returns the `Quantization` of a run's gradients.

        Args:
            seed: the run's seed.
            float_steps: as for `Quantization`. Default None.
        """
        # Flags are parsed and checked without TensorFlow.
        from terngrad_tf.distribute import Quantization

        names = [field.name for field in dataclasses.fields(QuantizationOptions)]
        values = {name: getattr(self, name) for name in names}
        if self.rotate:
            values["clip_factor"] = None
        return Quantization(**values, seed=seed, float_steps=float_steps)


@configuration
@harmless
class CheckpointConfig(Config):
    """When a run is saved, logged and written to TensorBoard."""

    save_iter: int = option(
        5000,
        "Steps between checkpoints, and between TensorBoard's histograms of weights and gradients.",
        checks.COUNT,
    )
    save_epochs: float | None = option(
        None, "Epochs between checkpoints.", checks.Range(0, 10**6, above=True)
    )
    save_interval_secs: float | None = option(
        None,
        "Seconds between checkpoints, which worker 0 writes. The last step is saved in any case.",
        checks.SECONDS,
    )
    save_summaries_secs: float | None = option(
        None, "Seconds between worker 0's TensorBoard events.", checks.SECONDS
    )
    max_to_keep: int = option(5, "Newest checkpoints kept.", checks.COUNT)
    log_freq: int | None = option(
        None,
        "Steps from one log line to the next. Default: 10, with several processes 30, in a "
        "subspace 1.",
        checks.COUNT,
    )
    telemetry_freq: int = option(
        100,
        "Steps between records of the cost and error of gradients' exchanges, in TensorBoard and "
        "in telemetry.jsonl of --train_dir, and between comparisons of ternary gradients with "
        "float gradients; 0: no measurements.",
        checks.COUNT_OR_0,
    )

    @property
    def statistics_freq(self) -> int:
        """Steps between records of the gradients' values."""
        known = self.save_summaries_secs is None and self.save_epochs is None
        return self.save_iter if known else _STEPS_BETWEEN_RECORDS


@configuration
@harmless
class SnapshotConfig(Config):
    """Weight snapshots, see `SnapshotCheckpoint`."""

    per_epoch: float | None = option(
        None,
        "Weight snapshots per epoch, for later training in their subspace; 0.5 takes one every "
        "two epochs. Snapshots are in checkpoint_pca in --train_dir. Default: none.",
        checks.Range(0, 10**6, above=True),
        name="snapshot_per_epoch",
    )
    every_steps: int | None = option(
        None,
        "Steps between snapshots, in place of --snapshot_per_epoch.",
        checks.COUNT,
        name="snapshot_every_steps",
    )
    start_epoch: int = option(
        0, "Epochs at the start without snapshots.", checks.COUNT_OR_0, name="snapshot_start_epoch"
    )
    keep_max: int | None = option(
        None,
        "Newest snapshots kept; older ones are removed. Default: all are kept.",
        checks.COUNT,
        name="snapshot_keep_max",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every_steps is not None:
            self.refuse_given(("per_epoch",), "together with `snapshot_every_steps`")
        if not self.are_taken:
            why = "without snapshots; --snapshot_per_epoch or --snapshot_every_steps takes them"
            self.refuse_given(("start_epoch", "keep_max"), why)

    @property
    def are_taken(self) -> bool:
        """True if the run keeps snapshots."""
        return self.per_epoch is not None or self.every_steps is not None


# Without local steps, other values than the defaults would change nothing.
_OF_LOCAL_STEPS = ("outer_learning_rate", "outer_momentum", "fragments", "overlap")


@configuration
class LocalStepsConfig(Config):
    """Local steps of each replica between exchanges, see `DiLoCo`."""

    sync_every: int = option(
        0,
        "Local steps of each replica between exchanges. The weights' changes travel as gradients "
        "do; 0: gradients travel in every step.",
        checks.COUNT_OR_0,
        before=0,
    )
    sync_seconds: float = option(
        0.0,
        "Approximate seconds between two exchanges, instead of --sync_every; faster workers take "
        "more steps. 0: all workers take the same number of steps.",
        checks.SECONDS,
        before=0.0,
    )
    outer_learning_rate: float = option(
        1.0,
        "For local steps: the rate at which mean changes are applied.",
        checks.FACTOR,
    )
    outer_momentum: float | None = option(
        None,
        "For local steps: Nesterov momentum of mean changes. Default: 0 for up to 16 steps between "
        "exchanges, 0.5 for 32 or more, and 1 - 16 / --sync_every in between.",
        checks.Range(0, 1),
    )
    fragments: int = option(
        1,
        "Groups of weights that are exchanged in turn, one every --sync_every / --fragments "
        "steps, so that each exchange is smaller. Must divide --sync_every.",
        checks.COUNT,
        before=1,
    )
    overlap: int = option(
        0,
        "Steps that replicas take while changes travel, at most --sync_every / --fragments; 0: "
        "replicas wait for the changes.",
        checks.COUNT_OR_0,
        before=0,
    )
    overlap_alpha: float = option(
        0.5,
        "For --overlap: the share of its local weights that a replica keeps after an exchange.",
        checks.Range(0, 1),
        identity=lambda steps: bool(steps.overlap),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, without in (("sync_every", 0), ("fragments", 1), ("overlap", 0)):
            if self.sync_seconds and getattr(self, name) != without:
                raise UserError(
                    f"`{name}` must be {without} with `sync_seconds`. "
                    f"Received: {name}={getattr(self, name)}, sync_seconds={self.sync_seconds:g}"
                )
        if not self.are_taken:
            why = "without local steps; --sync_every gives them"
            self.refuse_given(_OF_LOCAL_STEPS, why)
        if not self.overlap:
            self.refuse_given(("overlap_alpha",), "without overlap; --overlap gives it")
        rule = f"must divide `sync_every`, {self.sync_every}"
        require(self.sync_every % self.fragments == 0, "fragments", rule, self.fragments)
        most = self.sync_every // self.fragments
        rule = f"must be at most `sync_every` / `fragments`, {most}"
        require(not self.sync_every or self.overlap <= most, "overlap", rule, self.overlap)

    @property
    def are_taken(self) -> bool:
        """True if replicas take local steps."""
        return bool(self.sync_every or self.sync_seconds)

    @property
    def resolved_outer_momentum(self) -> float:
        """`outer_momentum`, or its default."""
        if self.outer_momentum is not None:
            return self.outer_momentum
        return default_outer_momentum(self.sync_every or None)

    def identity(self) -> dict[str, Any]:
        """Returns `Config.identity()` with the default resolved to its value; {} without steps."""
        if not self.are_taken:
            return {}
        return super().identity() | {"outer_momentum": self.resolved_outer_momentum}

    def exchanges(self, steps: int) -> int:
        """Returns the number of exchanges in `steps` steps; 0 if time schedules them."""
        if self.sync_seconds:
            return 0
        return steps // max(1, self.sync_every)


@configuration
class ClusterConfig(Config):
    """The replicas of a process."""

    num_gpus: int | None = option(
        None,
        "GPUs the replicas run on, 0 for the CPU. Default: all (1 in TernGrad), so that "
        "--num_nodes alone spreads replicas over all GPUs, or the CPU if there are none.",
        checks.integers(0, checks.WORKERS.most),
        identity=False,
        shared=False,
    )
    num_nodes: int = option(
        -1,
        "Replicas, spread in order over --num_gpus GPUs. -1: --num_gpus, or 1.",
        checks.integers(1, checks.WORKERS.most, also=-1),
    )
    communication: str = option(
        "auto",
        "Transport between the processes of a cluster: ring, over TensorFlow's own connections "
        "and through host memory, with or without GPUs; nccl, from GPU to GPU; auto: nccl if a "
        "process has several GPUs, else ring.",
        identity=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_nodes == -1:
            object.__setattr__(self, "num_nodes", self.num_gpus or 1)
        checks.WORKERS("num_nodes", self.num_nodes)


@configuration
class RunConfig(Config):
    """The parts of every run: data, network, gradients and length."""

    train_dir: str = option(
        REQUIRED,
        "Folder for checkpoints and TensorBoard logs. A folder with the same run is resumed; a "
        "folder with another run is refused, never emptied.",
        checks.folder,
        identity=False,
        shared=False,
    )
    max_steps: int = option(
        370000,
        "Steps of the whole run.",
        checks.COUNT,
        identity=lambda run: run.depends_on_its_length,
    )
    epochs: float | None = option(
        None, "Passes through the data.", checks.Range(0, 10**6, above=True), identity=False
    )
    seed: int = option(1, "Fixes initial weights, order of the data and rounding.", checks.SEED)
    data: TrainingDataConfig
    model: ModelConfig = ModelConfig()
    gradients: GradientConfig = GradientConfig()
    checkpoints: CheckpointConfig = CheckpointConfig()
    cluster: ClusterConfig = ClusterConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        num_nodes, batch_size = self.cluster.num_nodes, self.data.batch_size
        if num_nodes > batch_size:
            raise UserError(
                "`num_nodes` must be at most the batch size, so that each replica has an image. "
                f"Received: num_nodes={num_nodes}, batch_size={batch_size}"
            )
        if batch_size % num_nodes:
            raise UserError(
                "`batch_size` must be divisible by `num_nodes`. "
                f"Received: batch_size={batch_size}, num_nodes={num_nodes}"
            )

    @property
    def depends_on_its_length(self) -> bool:
        """True if `max_steps` affects every step, for instance by the learning rate."""
        return False

    def with_steps(self: _Self, num_examples: int) -> _Self:
        """Returns the configuration with epochs of `num_examples` converted to steps."""
        steps = {}
        epochs = {"max_steps": self.epochs, "save_iter": self.checkpoints.save_epochs}
        for name, number in epochs.items():
            if number is not None:
                steps[name] = math.ceil(as_fraction(number) * num_examples / self.data.batch_size)
        return self.changed(**steps)


@configuration
class TrainConfig(RunConfig):
    """Configuration of `train` and `train_async`."""

    optimizer: OptimizerConfig = OptimizerConfig()
    local_steps: LocalStepsConfig = LocalStepsConfig()
    snapshots: SnapshotConfig = SnapshotConfig()
    pretrained_model_checkpoint_path: str = option(
        "",
        "Checkpoint to start from, or folder of a run, for its newest checkpoint; or the "
        "Inception-v3 checkpoint of TensorFlow 1, such as inception-v3/model.ckpt-157585. The "
        "run continues from its step; see --fine_tune. If --train_dir holds a checkpoint, the "
        "run resumes from this one instead.",
    )
    fine_tune: bool = option(
        False,
        "Load the weights of --pretrained_model_checkpoint_path except the classification "
        "layers, which start anew, as do optimizer and step.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        name, net = self.data.dataset_name, self.model.net
        require(name is not None, "dataset_name", "must be given", name)
        rule = "must be given unless `fine_tune` is"
        require(net is not None or self.fine_tune, "net", rule, net)
        if self.fine_tune and not self.pretrained_model_checkpoint_path:
            raise UserError(
                "`fine_tune` must go with `pretrained_model_checkpoint_path`. "
                "Received: fine_tune=True, pretrained_model_checkpoint_path=''"
            )
        if self.local_steps.sync_seconds:
            rule = "must be 0 with `sync_seconds`, as exchanges belong to no epoch"
            period = self.gradients.floating_grad_epoch
            require(period == 0, "floating_grad_epoch", rule, period)
        if self.local_steps.sync_seconds and self.model.mixed_precision:
            rule = (
                "must be given with `mixed_precision` and `sync_seconds`, as workers would agree "
                "on it in every step"
            )
            scale = self.optimizer.loss_scale
            require(scale is not None, "loss_scale", rule, scale)

    @property
    def depends_on_its_length(self) -> bool:
        """True if `max_steps` affects every step."""
        return self.optimizer.decays_to_the_end

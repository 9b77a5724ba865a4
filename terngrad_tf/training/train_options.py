"""What a training run is told, checked once at the door."""

import dataclasses
import math

from terngrad_tf.training import checks
from terngrad_tf.training.errors import UserError

# Where a run is read and written, how fast, how often it is saved and how long it lasts do not
# change which run it is.
_NOT_IDENTITY = (
    "train_dir",
    "data_dir",
    "max_steps",
    "epochs",
    "num_gpus",
    "save_iter",
    "save_epochs",
    "save_interval_secs",
    "save_summaries_secs",
    "max_to_keep",
    "save_tower",
    "num_preprocess_threads",
    "skip_corrupt_records",
    "use_encoding",
    "snapshot_start_epoch",
    "snapshot_per_epoch",
    "snapshot_every_steps",
    "snapshot_keep_max",
)

_RANGES = {
    "num_classes": checks.COUNT,
    "image_size": checks.PIXELS,
    "batch_size": checks.BATCH,
    "max_steps": checks.COUNT,
    "initial_learning_rate": checks.FACTOR,
    "learning_rate_decay_factor": checks.FACTOR,
    "num_epochs_per_decay": checks.EPOCHS,
    "warmup_epochs": checks.EPOCHS,
    "decay_epochs": checks.EPOCHS,
    "momentum": checks.Range(0, 1),
    "weight_decay": checks.FACTOR,
    "dropout_keep_prob": checks.Range(0, 1, above=True),
    "label_smoothing": checks.Range(0, 1, below=True),
    "epochs": checks.Range(0, 10**6, above=True),
    "save_epochs": checks.Range(0, 10**6, above=True),
    "loss_scale": checks.Range(0, 2**31),
    "seed": checks.SEED,
    "num_nodes": checks.integers(1, checks.WORKERS.most, also=-1),
    "num_gpus": checks.integers(0, checks.WORKERS.most),
    "grad_bits": checks.GRAD_BITS,
    "clip_factor": checks.FACTOR,
    "floating_grad_epoch": checks.COUNT_OR_0,
    "size_to_binarize": checks.COUNT,
    "save_iter": checks.COUNT,
    "save_interval_secs": checks.SECONDS,
    "save_summaries_secs": checks.SECONDS,
    "save_tower": checks.integers(0, checks.WORKERS.most, also=-1),
    "max_to_keep": checks.COUNT,
    "snapshot_per_epoch": checks.Range(0, 10**6, above=True),
    "snapshot_every_steps": checks.COUNT,
    "snapshot_start_epoch": checks.COUNT_OR_0,
    "snapshot_keep_max": checks.COUNT,
    "num_readers": checks.THREADS,
    "num_preprocess_threads": checks.THREADS,
    "input_queue_memory_factor": checks.BUFFER,
}

# Where time says when to write for TensorBoard, a record must be at hand.
_STEPS_BETWEEN_RECORDS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of `train`.

    Args:
        train_dir: folder for checkpoints and TensorBoard logs; holding the same run, it is resumed.
        data_dir: folder with the TFRecords; not read with benchmark_mode.
        dataset_name: name of the data set.
        subset: its part to train on. Default "train".
        num_classes: classes that images of one's own have, without the background of photos.
            Default: the data set's.
        net: name of the network, or None with fine_tune: that of the weights to start from, and its
            image_size where none is given. Default "lenet".
        image_size: height and width of the images in pixels. Default: the network's usual size.
        batch_size: images per step over all workers together, divisible by num_nodes. Default 32.
        max_steps: number of steps of the whole run. Default 370000.
        epochs: passes through the data, instead of max_steps; the log then tells epochs too.
            Default: as max_steps says.
        optimizer: "momentum", "adam", "gd" or "rmsprop". Default "momentum".
        initial_learning_rate: Default 0.01.
        learning_rate_decay_type: "fixed", "exponential", "linear" or "polynomial". Default
            "exponential".
        learning_rate_decay_factor: factor of each exponential decay. Default 0.1.
        num_epochs_per_decay: epochs between exponential decays. Default 20.
        warmup_epochs: epochs over which the rate rises, for "linear". Default 0.
        decay_epochs: epoch at which the rate is 0, for "linear". Default: that of max_steps.
        momentum: for "momentum" and "rmsprop". Default 0.9.
        weight_decay: L2 factor. Default 0.0005.
        dropout_keep_prob: probability, in (0, 1], of keeping a unit where the network drops units.
            Default 0.5.
        label_smoothing: share of each target, in [0, 1), that is spread evenly over all classes.
            Default: the network's.
        fine_tune: whether the layers that tell the classes start anew when other weights come from
            pretrained_model_checkpoint_path. Default False.
        pretrained_model_checkpoint_path: checkpoint, or folder with checkpoints, of a run to start
            from. Default "": start anew.
        seed: integer; fixes weights, data order, rounding. Default 1.
        num_nodes: number of workers. Default -1: num_gpus, or 1.
        num_gpus: number of GPUs the workers run on, 0 for the CPU. Default: all there are.
        grad_bits: 1 for ternary gradients, 32 for float. Default 32.
        clip_factor: standard deviations at which gradients are clipped; 0: no clipping.
            Default 0.
        floating_grad_epoch: of each so many epochs the last has float gradients; 0: none.
            Default 0.
        size_to_binarize: variables with fewer elements keep float gradients. Default 1.
        quantize_logits: whether the last layer's gradients are ternary too. Default False.
        use_encoding: ternary gradients always travel encoded; only True is taken. Default True.
        rounding: "correlated" or "independent". Default "correlated".
        wire: wire of the strategy. Default "auto".
        save_iter: steps between checkpoints and between histograms. Default 5000.
        save_epochs: epochs between checkpoints, instead of save_iter. Default: as save_iter says.
        save_interval_secs: seconds between checkpoints, instead of save_iter. Default: as save_iter
            says.
        save_summaries_secs: seconds between what is written for TensorBoard. Default: as save_iter
            and the log lines say.
        save_tower: worker whose copy of the variables is saved, -1 for all: all hold the same
            values, and one copy stands for them. Default -1.
        max_to_keep: newest checkpoints kept. Default 5.
        mixed_precision: whether to compute in float16. Default False.
        loss_scale: factor of the loss whose gradient is taken, and divided again before it is used;
            steps with gradients that are not finite are not left out. Default (or 0): with
            mixed_precision a factor that adapts and leaves such steps out, otherwise none.
        snapshot_per_epoch: weight snapshots an epoch, as for `SnapshotCheckpoint`. Default: none.
        snapshot_every_steps: steps between snapshots, instead of snapshot_per_epoch. Default: none.
        snapshot_start_epoch: epochs at the start without snapshots. Default 0.
        snapshot_keep_max: newest snapshots kept. Default: all.
        num_readers: files read in parallel. Default 4.
        num_preprocess_threads: images decoded and distorted in parallel. Default: twice the
            CPU cores.
        input_queue_memory_factor: the shuffle buffer holds 1024 times as many records. Default 16.
        skip_corrupt_records: whether to leave out records that cannot be read, after telling which.
            Default False: they are an error.
        benchmark_mode: train on grey images with random labels instead of the data set's. Default
            False.

    Raises:
        UserError: a number outside its range.
    """

    train_dir: str
    data_dir: str
    dataset_name: str
    subset: str = "train"
    num_classes: int | None = None
    net: str | None = "lenet"
    image_size: int | None = None
    batch_size: int = 32
    max_steps: int = 370000
    epochs: float | None = None
    optimizer: str = "momentum"
    initial_learning_rate: float = 0.01
    learning_rate_decay_type: str = "exponential"
    learning_rate_decay_factor: float = 0.1
    num_epochs_per_decay: float = 20.0
    warmup_epochs: float = 0.0
    decay_epochs: float | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0005
    dropout_keep_prob: float = 0.5
    label_smoothing: float | None = None
    fine_tune: bool = False
    pretrained_model_checkpoint_path: str = ""
    seed: int = 1
    num_nodes: int = -1
    num_gpus: int | None = None
    grad_bits: int = 32
    clip_factor: float = 0.0
    floating_grad_epoch: int = 0
    size_to_binarize: int = 1
    quantize_logits: bool = False
    use_encoding: bool = True
    rounding: str = "correlated"
    wire: str = "auto"
    save_iter: int = 5000
    save_epochs: float | None = None
    save_interval_secs: float | None = None
    save_summaries_secs: float | None = None
    save_tower: int = -1
    max_to_keep: int = 5
    mixed_precision: bool = False
    loss_scale: float | None = None
    snapshot_per_epoch: float | None = None
    snapshot_every_steps: int | None = None
    snapshot_start_epoch: int = 0
    snapshot_keep_max: int | None = None
    num_readers: int = 4
    num_preprocess_threads: int | None = None
    input_queue_memory_factor: int = 16
    skip_corrupt_records: bool = False
    benchmark_mode: bool = False

    def __post_init__(self):
        checks.ranges(self, _RANGES)
        checks.folder("train_dir", self.train_dir)
        checks.path("data_dir", self.data_dir)
        if self.loss_scale == 0:
            object.__setattr__(self, "loss_scale", None)
        if self.num_nodes == -1:
            object.__setattr__(self, "num_nodes", self.num_gpus or 1)
        checks.WORKERS.check("num_nodes", self.num_nodes)
        if self.num_nodes > self.batch_size:
            raise UserError(
                "`num_nodes` must be at most the batch size, so that each worker has an image. "
                f"Received: num_nodes={self.num_nodes}, batch_size={self.batch_size}"
            )
        if self.batch_size % self.num_nodes:
            raise UserError(
                "`batch_size` must be divisible by `num_nodes`. "
                f"Received: batch_size={self.batch_size}, num_nodes={self.num_nodes}"
            )
        checks.tower("save_tower", self.save_tower, self.num_nodes)
        if not self.use_encoding:
            raise UserError(
                "`use_encoding` must be True: ternary gradients always travel encoded, without "
                f"loss. Received: use_encoding={self.use_encoding!r}"
            )
        if self.benchmark_mode and self.num_classes is not None:
            raise UserError(
                "`num_classes` must not be given together with `benchmark_mode`. "
                f"Received: num_classes={self.num_classes!r}"
            )
        if self.net is None and not self.fine_tune:
            raise UserError("`net` must be given unless `fine_tune` is. Received: net=None")
        if self.fine_tune and not self.pretrained_model_checkpoint_path:
            raise UserError(
                "`fine_tune` must go with `pretrained_model_checkpoint_path`. "
                "Received: fine_tune=True, pretrained_model_checkpoint_path=''"
            )

    @property
    def statistics_freq(self):
        """Steps from one record of the gradients' values to the next."""
        known = self.save_summaries_secs is None and self.save_epochs is None
        return self.save_iter if known else _STEPS_BETWEEN_RECORDS

    def with_steps(self, num_examples):
        """The options with the steps that epochs of so many examples take."""
        steps = {}
        for name, epochs in (("max_steps", self.epochs), ("save_iter", self.save_epochs)):
            if epochs is not None:
                steps[name] = math.ceil(epochs * num_examples / self.batch_size)
        return dataclasses.replace(self, **steps)

    def facts(self):
        """Dict of the options that all processes of a cluster must share."""
        own = ("train_dir", "data_dir", "num_gpus", "num_preprocess_threads")
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in own}

    def identity(self):
        """Dict of the options that make this run another one than the next."""
        identity = dataclasses.asdict(self)
        for name in _NOT_IDENTITY:
            identity.pop(name)
        decays_to_the_end = self.learning_rate_decay_type == "polynomial" or (
            self.learning_rate_decay_type == "linear" and self.decay_epochs is None
        )
        if decays_to_the_end and self.optimizer != "adam":
            identity["max_steps"] = self.max_steps  # the learning rate depends on it
        return identity

"""What a training run and an evaluation are told, checked once at the door."""

import dataclasses

from terngrad_tf.training.errors import UserError

# Where a run is read and written, how often it is saved and how long it lasts do not change which
# run it is.
_NOT_IDENTITY = (
    "train_dir",
    "data_dir",
    "max_steps",
    "num_gpus",
    "save_iter",
    "max_to_keep",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of `train`.

    Args:
        train_dir: folder for checkpoints and TensorBoard logs; holding the same run, it is resumed.
        data_dir: folder with the TFRecords.
        dataset_name: name of the data set.
        subset: its part to train on. Default "train".
        net: name of the network. Default "lenet".
        image_size: height and width of the images in pixels. Default: the network's usual size.
        batch_size: images per step over all workers together, divisible by num_nodes. Default 32.
        max_steps: number of steps of the whole run. Default 370000.
        optimizer: "momentum", "adam", "gd" or "rmsprop". Default "momentum".
        initial_learning_rate: Default 0.01.
        learning_rate_decay_type: "fixed", "exponential" or "polynomial". Default "exponential".
        learning_rate_decay_factor: factor of each exponential decay. Default 0.1.
        num_epochs_per_decay: epochs between exponential decays. Default 20.
        momentum: for "momentum" and "rmsprop". Default 0.9.
        weight_decay: L2 factor. Default 0.0005.
        dropout_keep_prob: probability, in (0, 1], of keeping a unit where the network drops units.
            Default 0.5.
        seed: integer; fixes weights, data order, rounding. Default 1.
        num_nodes: number of workers. Default: num_gpus, or 1.
        num_gpus: number of GPUs the workers run on, 0 for the CPU. Default: all there are.
        grad_bits: 1 for ternary gradients, 32 for float. Default 32.
        clip_factor: standard deviations at which gradients are clipped; 0: no clipping.
            Default 0.
        size_to_binarize: variables with fewer elements keep float gradients. Default 1.
        quantize_logits: whether the last layer's gradients are ternary too. Default False.
        rounding: "correlated" or "independent". Default "correlated".
        wire: wire of the strategy. Default "auto".
        save_iter: steps between checkpoints. Default 5000.
        max_to_keep: newest checkpoints kept. Default 5.
        num_readers: files read in parallel. Default 4.
        input_queue_memory_factor: the shuffle buffer holds 1024 times as many records. Default 16.

    Raises:
        UserError: a number outside its range.
    """

    train_dir: str
    data_dir: str
    dataset_name: str
    subset: str = "train"
    net: str = "lenet"
    image_size: int | None = None
    batch_size: int = 32
    max_steps: int = 370000
    optimizer: str = "momentum"
    initial_learning_rate: float = 0.01
    learning_rate_decay_type: str = "exponential"
    learning_rate_decay_factor: float = 0.1
    num_epochs_per_decay: float = 20.0
    momentum: float = 0.9
    weight_decay: float = 0.0005
    dropout_keep_prob: float = 0.5
    seed: int = 1
    num_nodes: int | None = None
    num_gpus: int | None = None
    grad_bits: int = 32
    clip_factor: float = 0.0
    size_to_binarize: int = 1
    quantize_logits: bool = False
    rounding: str = "correlated"
    wire: str = "auto"
    save_iter: int = 5000
    max_to_keep: int = 5
    num_readers: int = 4
    input_queue_memory_factor: int = 16

    def __post_init__(self):
        for name in (
            "batch_size",
            "max_steps",
            "save_iter",
            "max_to_keep",
            "size_to_binarize",
            "num_readers",
            "input_queue_memory_factor",
        ):
            _check_positive(name, getattr(self, name))
        for name in ("image_size", "num_nodes"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        if self.num_gpus is not None and self.num_gpus < 0:
            raise UserError(f"`num_gpus` must be at least 0. Received: num_gpus={self.num_gpus}")
        if self.num_nodes is None:
            object.__setattr__(self, "num_nodes", self.num_gpus or 1)
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

    def identity(self):
        """Dict of the options that make this run another one than the next."""
        identity = dataclasses.asdict(self)
        for name in _NOT_IDENTITY:
            identity.pop(name)
        if self.learning_rate_decay_type == "polynomial" and self.optimizer != "adam":
            identity["max_steps"] = self.max_steps  # the learning rate depends on it
        return identity


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Options of `evaluate`. What is None is taken from the run in `checkpoint_dir`.

    Args:
        checkpoint_dir: the train_dir of a run.
        eval_dir: folder for TensorBoard logs.
        data_dir: folder with the TFRecords.
        dataset_name: name of the data set. Default None.
        subset: its part to evaluate on. Default "test".
        net: name of the network; must be the run's. Default None.
        image_size: pixels; must be the run's. Default None.
        batch_size: images per batch. Default 32.
        num_examples: evaluate at most so many. Default None: the whole subset.
        max_steps: evaluation ends once the checkpoint of this step is evaluated. Default None.
        eval_interval_secs: pause in seconds between looks for a new checkpoint. Default 3600.
        run_once: evaluate the newest checkpoint and end. Default False.
        restore_avg_var: evaluate the moving averages of the weights. Default True.
        device: device to run on; the CPU where it does not exist. Default "/gpu:0".
        num_readers: files read in parallel. Default 4.

    Raises:
        UserError: a number outside its range.
    """

    checkpoint_dir: str
    eval_dir: str
    data_dir: str
    dataset_name: str | None = None
    subset: str = "test"
    net: str | None = None
    image_size: int | None = None
    batch_size: int = 32
    num_examples: int | None = None
    max_steps: int | None = None
    eval_interval_secs: int = 3600
    run_once: bool = False
    restore_avg_var: bool = True
    device: str = "/gpu:0"
    num_readers: int = 4

    def __post_init__(self):
        for name in ("batch_size", "num_readers"):
            _check_positive(name, getattr(self, name))
        for name in ("image_size", "num_examples", "max_steps"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        if self.eval_interval_secs < 0:
            raise UserError(
                "`eval_interval_secs` must be at least 0. "
                f"Received: eval_interval_secs={self.eval_interval_secs}"
            )


def _check_positive(name, value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"`{name}` must be a positive integer. Received: {name}={value!r}")

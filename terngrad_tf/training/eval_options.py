"""What an evaluation is told, checked once at the door."""

import dataclasses

from terngrad_tf.training import checks

_RANGES = {
    "image_size": checks.PIXELS,
    "seed": checks.SEED,
    "weight_decay": checks.FACTOR,
    "dropout_keep_prob": checks.Range(0, 1, above=True),
    "size_to_binarize": checks.COUNT,
    "batch_size": checks.BATCH,
    "num_examples": checks.COUNT,
    "max_steps": checks.COUNT,
    "eval_interval_secs": checks.integers(0, 10**9),
    "tower": checks.integers(0, checks.WORKERS.most, also=-1),
    "num_readers": checks.THREADS,
    "num_preprocess_threads": checks.THREADS,
    "input_queue_memory_factor": checks.BUFFER,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Options of `evaluate`. What is None is taken from the run in `checkpoint_dir`.

    Args:
        checkpoint_dir: the train_dir of a run, or a folder with the Inception-v3 checkpoint of
            TensorFlow 1.
        eval_dir: folder for TensorBoard logs.
        data_dir: folder with the TFRecords.
        dataset_name: name of the data set. Default None.
        subset: its part to evaluate on. Default "test".
        net: name of the network; must be the run's. Default None.
        image_size: pixels; must be the run's. Default None.
        seed: must be the run's. Default None.
        weight_decay: must be the run's. Default None.
        dropout_keep_prob: must be the run's; evaluation drops nothing. Default None.
        size_to_binarize: must be the run's. Default None.
        batch_size: images per batch. Default 32.
        num_examples: evaluate at most so many. Default None: the whole subset.
        max_steps: evaluation ends once the checkpoint of this step is evaluated. Default None.
        eval_interval_secs: pause in seconds between looks for a new checkpoint. Default 3600.
        run_once: evaluate the newest checkpoint and end. Default False.
        restore_avg_var: evaluate the moving averages of the weights. Default True.
        tower: worker whose copy of the variables to evaluate, -1 for any; all hold the same values.
            Default -1.
        device: device to run on; the CPU where it does not exist. Default "/gpu:0".
        num_readers: files read in parallel. Default 4.
        num_preprocess_threads: images decoded in parallel. Default: twice the CPU cores.
        input_queue_memory_factor: as for training; evaluation reads in order and keeps no queue.
            Default 16.
        skip_corrupt_records: whether to leave out records that cannot be read, after telling which.
            Default False: they are an error.

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
    seed: int | None = None
    weight_decay: float | None = None
    dropout_keep_prob: float | None = None
    size_to_binarize: int | None = None
    batch_size: int = 32
    num_examples: int | None = None
    max_steps: int | None = None
    eval_interval_secs: int = 3600
    run_once: bool = False
    restore_avg_var: bool = True
    tower: int = -1
    device: str = "/gpu:0"
    num_readers: int = 4
    num_preprocess_threads: int | None = None
    input_queue_memory_factor: int = 16
    skip_corrupt_records: bool = False

    def __post_init__(self):
        checks.ranges(self, _RANGES)

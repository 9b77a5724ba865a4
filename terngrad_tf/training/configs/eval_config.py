"""Configurations for trained networks: evaluation, export, prediction."""

import dataclasses
import os
from collections.abc import Callable

from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import REQUIRED, Config, configuration, option
from terngrad_tf.training.configs.data_config import DATASETS, DataConfig
from terngrad_tf.training.errors import require


@configuration
class EvalDataConfig(DataConfig):
    """Records to evaluate on."""

    dataset_name: str | None = option(None, f"Data set: {DATASETS}. Default: the run's.")
    subset: str = option("test", "Part of the data set to evaluate on.")
    batch_size: int = option(32, "Images per batch.", checks.BATCH)
    input_queue_memory_factor: int = option(
        16, "As for training; evaluation reads in order and keeps no queue.", checks.BUFFER
    )


@configuration
class EvalConfig(Config):
    """Configuration of `evaluate`."""

    data: EvalDataConfig
    checkpoint_dir: str = option(
        REQUIRED,
        "The --train_dir of a run, or a folder with TensorFlow 1's Inception-v3 checkpoint.",
        checks.folder,
    )
    eval_dir: str = option(REQUIRED, "Folder for TensorBoard logs.", checks.path)
    num_examples: int | None = option(
        None,
        "Maximum number of examples. Default: the whole subset, each example once.",
        checks.COUNT,
    )
    max_steps: int | None = option(
        None, "End after the checkpoint of this step. Default: the run's --max_steps.", checks.COUNT
    )
    eval_interval_secs: int = option(
        3600,
        "Seconds between looks for a new checkpoint; the last step's is evaluated at once.",
        checks.integers(0, 10**9),
    )
    run_once: bool = option(False, "Evaluate the newest checkpoint and end.")
    restore_avg_var: bool = option(
        True, "Evaluate the moving averages of the weights and of batch norm's statistics."
    )
    device: str = option("/gpu:0", "Device; the CPU if the device does not exist.")
    # Called with each run found, see `run_folder.read_run`; raises UserError for a wrong run.
    check_run: Callable = dataclasses.field(default=lambda run: None)

    def __post_init__(self) -> None:
        super().__post_init__()
        differ = os.path.realpath(self.eval_dir) != os.path.realpath(self.checkpoint_dir)
        rule = (
            "must be another folder than `checkpoint_dir`, whose curves have the same names in "
            "TensorBoard"
        )
        require(differ, "eval_dir", rule, os.fspath(self.eval_dir))


@configuration
class ExportConfig(Config):
    """Configuration of `export`."""

    checkpoint_dir: str = option(
        REQUIRED, "The --train_dir of a run, for its newest checkpoint.", checks.folder
    )
    output: str = option(
        REQUIRED,
        "Path to write: a file that ends in .keras, or a folder, which becomes a SavedModel. The "
        "path must not exist.",
        checks.path,
    )
    restore_avg_var: bool = option(
        True, "Export the moving averages of the weights, if the run kept them."
    )


@configuration
class PredictConfig(Config):
    """Configuration of `predict`, except the images."""

    checkpoint_dir: str = option(
        REQUIRED, "The --train_dir of a run, for its newest checkpoint.", checks.folder
    )
    data_dir: str = option(
        "",
        "Folder of the data set, if its labels.txt names the classes. Default: the run's.",
        checks.path,
    )
    output: str = option(
        "", "CSV file to write; replaced if it exists. Default: none.", checks.path
    )
    top: int = option(3, "Number of classes to report per image, most likely first.", checks.COUNT)
    batch_size: int = option(32, "Images per batch.", checks.BATCH)
    restore_avg_var: bool = option(
        True, "Use the moving averages of the weights, if the run kept them."
    )

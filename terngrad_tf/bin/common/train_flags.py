"""Flags of the training programs: options of `TrainConfig`, with different defaults."""

from collections.abc import Collection, Mapping
from typing import Any

from absl.flags import FlagValues

from terngrad_tf.bin.common import flags, tf1_flags
from terngrad_tf.training.configs.config import Config, configuration, harmless, option
from terngrad_tf.training.configs.run_config import TrainConfig

# Options of cluster programs (by time) and of the first phase (by epoch).
_BY_STEP = ("epochs", "save_epochs", "save_interval_secs", "save_summaries_secs")
# Folders of TernGrad's commands.
FOLDERS = {"data_dir": "/tmp/mydata", "train_dir": "/tmp/dataset_train"}

# Of programs that also train without records to evaluate on.
EVALUATED_IF_THERE = {
    "eval_subset": (
        "Part of the data set to evaluate on at the end. Default: test or validation, if "
        "--data_dir holds it."
    )
}


@configuration
@harmless
class FinalEvaluation(Config):
    """What is done once the network is trained."""

    eval_subset: str | None = option(
        None, "Part of the data set to evaluate on at the end. Default: test or validation."
    )


def define(
    values: FlagValues,
    *,
    omit: Collection[str] = _BY_STEP,
    texts: Mapping[str, str] | None = None,
    **defaults: Any,
) -> None:
    """Defines the flags of a training program; arguments: see `flags.define`."""
    flags.define(values, TrainConfig, omit=omit, texts=texts, **{**FOLDERS, **defaults})
    flags.define(values, tf1_flags.TrainingFlags)

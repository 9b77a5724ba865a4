"""Flags of the training programs: options of `TrainConfig`, and what differs from its defaults."""

from collections.abc import Collection, Mapping
from typing import Any

from absl.flags import FlagValues

from terngrad_tf.bin import flags, tf1_flags
from terngrad_tf.training.run_config import TrainConfig

# By time and by epoch go the programs for several processes and the first phase of two.
_BY_STEP = ("epochs", "save_epochs", "save_interval_secs", "save_summaries_secs")
# The folders of TernGrad's commands.
FOLDERS = {"data_dir": "/tmp/mydata", "train_dir": "/tmp/dataset_train"}


def define(
    values: FlagValues,
    *,
    omit: Collection[str] = _BY_STEP,
    texts: Mapping[str, str] | None = None,
    **defaults: Any,
) -> None:
    """Defines the flags of a training program; arguments as for `flags.define`."""
    omit = ("max_to_keep", *omit)
    flags.define(values, TrainConfig, omit=omit, texts=texts, **{**FOLDERS, **defaults})
    flags.define(values, tf1_flags.TrainingFlags)

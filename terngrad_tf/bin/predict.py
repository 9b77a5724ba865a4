"""Classifies images with a run's network.

Example:
    terngrad predict --checkpoint_dir /tmp/run photos/ cat.jpg --output predictions.csv
"""

from collections.abc import Sequence
from typing import Any

from absl.flags import FlagValues

from terngrad_tf.bin.common import flags, program, train_flags
from terngrad_tf.training.configs.predict_config import PredictConfig

DESCRIPTION = (
    "terngrad predict --checkpoint_dir RUN IMAGE [IMAGE...] tells the likeliest classes of images, "
    "files or folders of them, made ready as those that the network of the run was evaluated on."
)


def define_flags(values: FlagValues) -> None:
    """Defines the program's flags."""
    flags.define(values, PredictConfig, checkpoint_dir=train_flags.FOLDERS["train_dir"])


def main(argv: Sequence[str], **options: Any) -> int:
    """Runs the program; `argv` starts with its name. Returns the exit status."""
    return program.run_program(DESCRIPTION, define_flags, _main, argv, takes_words=True, **options)


def _main(values, images):
    from terngrad_tf.training.evaluation import predicting

    predicting.predict(flags.config_of(values, PredictConfig), images)


def run() -> None:
    """Entry point of the console command."""
    program.run_and_exit(main)


if __name__ == "__main__":
    run()

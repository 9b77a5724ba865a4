"""Classifies images with a run's network.

Example:
    terngrad predict --checkpoint_dir /tmp/run photos/ cat.jpg --output predictions.csv
"""

from terngrad_tf.bin.common import flags, program, train_flags
from terngrad_tf.training.configs.eval_config import PredictConfig

_DESCRIPTION = (
    "terngrad predict --checkpoint_dir RUN IMAGE [IMAGE...] tells the likeliest classes of images, "
    "files or folders of them, made ready as those that the network of the run was evaluated on."
)


def _define(values):
    flags.define(values, PredictConfig, checkpoint_dir=train_flags.FOLDERS["train_dir"])


def _main(values, images):
    from terngrad_tf.training.evaluation import predicting

    predicting.predict(flags.config_of(values, PredictConfig), images)


PROGRAM = program.Program(_DESCRIPTION, _define, _main, takes_words=True)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()

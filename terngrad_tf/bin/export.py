"""Exports the network of a run as a .keras file or a SavedModel.

Example:
    python -m terngrad_tf.bin.export --checkpoint_dir /tmp/run --output /tmp/lenet.keras
    python -m terngrad_tf.bin.export --checkpoint_dir /tmp/run --output /tmp/lenet
"""

from terngrad_tf.bin.common import flags, program, train_flags
from terngrad_tf.training.configs.eval_config import ExportConfig


def _define(values):
    checkpoint_dir = train_flags.FOLDERS["train_dir"]
    output = "/tmp/network.keras"
    flags.define(values, ExportConfig, checkpoint_dir=checkpoint_dir, output=output)


def _export(values):
    from terngrad_tf.training.evaluation import exporting

    exporting.export(flags.config_of(values, ExportConfig))


PROGRAM = program.Program(
    "Writes the network of a run as a .keras file or as a SavedModel.", _define, _export
)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()

"""What an export is told."""

from terngrad_tf.training import checks
from terngrad_tf.training.config import REQUIRED, Config, configuration, option


@configuration
class ExportConfig(Config):
    """What `export` is told."""

    checkpoint_dir: str = option(
        REQUIRED, "The --train_dir of a run, whose newest checkpoint is taken.", checks.folder
    )
    output: str = option(
        REQUIRED,
        "What to write: a file that ends in .keras, or a folder, which becomes a SavedModel. "
        "Nothing may be there.",
        checks.path,
    )
    restore_avg_var: bool = option(
        True, "Take the moving averages of the weights, where the run kept them."
    )

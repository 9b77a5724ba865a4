"""Configuration of an export."""

from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import REQUIRED, Config, configuration, option


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

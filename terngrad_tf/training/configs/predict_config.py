"""Configuration of a prediction."""

from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import REQUIRED, Config, configuration, option


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

"""What a prediction is told."""

from terngrad_tf.training import checks
from terngrad_tf.training.config import REQUIRED, Config, configuration, option


@configuration
class PredictConfig(Config):
    """What `predict` is told besides the images."""

    checkpoint_dir: str = option(
        REQUIRED, "The --train_dir of a run, whose newest checkpoint is taken.", checks.folder
    )
    data_dir: str = option(
        "",
        "Folder of the data set, where its labels.txt names the classes. Default: the run's.",
        checks.path,
    )
    output: str = option(
        "", "CSV file to write, replaced if it is there. Default: none is written.", checks.path
    )
    top: int = option(3, "Classes told of each image, the likeliest first.", checks.COUNT)
    batch_size: int = option(32, "Images per batch.", checks.BATCH)
    restore_avg_var: bool = option(
        True, "Take the moving averages of the weights, where the run kept them."
    )

"""Configuration of averaging a run's snapshots."""

from terngrad_tf.phase_2.config import SubspaceDataConfig
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import REQUIRED, configuration, option
from terngrad_tf.training.configs.run_config import RunConfig


@configuration
class AverageConfig(RunConfig):
    """Configuration of `average_run`; the run of the snapshots determines the network."""

    max_steps: int = option(0, "Unused: no training steps.", checks.COUNT_OR_0, identity=False)
    pretrained_weight_path: str = option(
        REQUIRED,
        "The --train_dir of the run whose snapshots to average, or one of its checkpoints.",
        checks.folder,
        identity=False,
    )
    weight_load_dir: str = option(
        "",
        "Folder with the weight snapshots, relative to the present folder or, if missing there, "
        "to the parent of the run. Default: checkpoint_pca of that run.",
        checks.path,
        identity=False,
    )
    num_snapshots: int | None = option(
        None,
        "Newest snapshots to average. Default: all.",
        checks.COUNT,
        identity=False,  # the snapshots are compared
    )
    data: SubspaceDataConfig

"""What averaging a run's snapshots is told."""

from terngrad_tf.training import checks
from terngrad_tf.training.config import REQUIRED, configuration, option
from terngrad_tf.training.run_config import RunConfig
from terngrad_tf.training.subspace_config import SubspaceDataConfig


@configuration
class AverageConfig(RunConfig):
    """What `average_run` is told; it takes the network from the run whose snapshots they are."""

    max_steps: int = option(0, "None: nothing is trained.", checks.COUNT_OR_0, identity=False)
    pretrained_weight_path: str = option(
        REQUIRED,
        "The --train_dir of the run whose snapshots to average, or one of its checkpoints.",
        checks.folder,
        identity=False,
    )
    weight_load_dir: str = option(
        "",
        "Folder with the weight snapshots, relative to the present folder or, where that lacks "
        "it, to the one that holds that run. Default: checkpoint_pca of that run.",
        checks.path,
        identity=False,
    )
    num_snapshots: int | None = option(
        None,
        "Newest snapshots to average. Default: all.",
        checks.COUNT,
        identity=False,  # the snapshots' names are compared
    )
    data: SubspaceDataConfig

"""What averaging a run's snapshots is told."""

from typing import Any

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
        None, "Newest snapshots to average. Default: all.", checks.COUNT
    )
    data: SubspaceDataConfig

    def identity(self) -> dict[str, Any]:
        """Dict of the values that make this average another one than the next."""
        names = (
            *("dataset_name", "subset", "net", "image_size", "batch_size", "weight_decay"),
            *("dropout_keep_prob", "label_smoothing", "seed", "num_nodes", "size_to_binarize"),
        )
        values = self.values()
        return {name: values[name] for name in names}

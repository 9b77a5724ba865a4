"""Trains a network in the subspace of its earlier weights.

Example:
    python -m terngrad_tf.bin.subspace_train --data_dir /tmp/digits \\
        --pretrained_weight_path /tmp/stage_1 --train_dir /tmp/stage_2

On several hosts, run the same command on each, with --worker_hosts and --task_id, a rank table,
Slurm or TF_CONFIG. Only the chief needs folders besides the data's, evaluates and draws.
"""

from slim_data.common.extras import check_installed
from terngrad_tf.bin.common import cluster_flags, flags, program, run_reports, train_flags
from terngrad_tf.phase_2.config import SubspaceConfig
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import (
    Config,
    configuration,
    harmless,
    name_of,
    option,
    options,
)
from terngrad_tf.training.configs.model_config import ModelConfig
from terngrad_tf.training.configs.run_config import CheckpointConfig

# Help texts that differ in this program.
_TEXTS = {
    "train_dir": (
        "Folder for checkpoints, TensorBoard logs and the picture. A folder with the same run is "
        "resumed, another run is refused; nothing is ever deleted."
    )
}
# The network is the initial run's, and all weights move at once.
_NO_FLAGS = (
    *map(name_of, options(ModelConfig)),
    *map(name_of, options(CheckpointConfig)),
    *("num_classes", "benchmark_mode", "input_queue_memory_factor", "max_steps"),
    *("floating_grad_epoch", "size_to_binarize", "quantize_logits", "rounding", "wire"),
)


@configuration
@harmless
class BoostFlags(Config):
    """MindSpore's own way to say options, whose values are compared."""

    boost_config: str = option(
        "",
        "JSON file with MindSpore's boost_config_dict, where boost.dim_reduce is true; flags on "
        "the command line override it. Other features may be configured, but must be off.",
        checks.path,
    )
    boost_level: str = option(
        "O1", "MindSpore's boost_level: O1 or O2, which are equivalent with dimension reduction."
    )


def _define(values):
    folders = {"data_dir": train_flags.FOLDERS["data_dir"], "train_dir": "/tmp/subspace_train"}
    flags.define(
        values, SubspaceConfig, omit=_NO_FLAGS, texts=_TEXTS, pretrained_weight_path="", **folders
    )
    flags.define(values, train_flags.FinalEvaluation, texts=train_flags.EVALUATED_IF_THERE)
    flags.define(values, BoostFlags)
    cluster_flags.define(values)


def _train(values):
    from terngrad_tf import phase_2
    from terngrad_tf.phase_2 import boost_config, phases, picture
    from terngrad_tf.training.evaluation import final_evaluation
    from terngrad_tf.training.log import log
    from terngrad_tf.training.logs import report

    boost = flags.config_of(values, BoostFlags)
    boost_config.check_level(boost.boost_level)
    check_installed("matplotlib")
    if boost.boost_config:
        found = boost_config.read_boost_config(boost.boost_config)
        for notice in found.notices:
            log(notice)
        for name, value in found.options.items():
            values.set_default(name, value)
    config, subset = flags.config_of(values, SubspaceConfig), None

    def find_subset(data):
        nonlocal subset
        subset = final_evaluation.find_subset(data, values.eval_subset)

    result = phase_2.train_in_subspace(config, find_subset, **cluster_flags.arguments(values))
    if not result.is_chief:
        return
    accuracies = {}
    if subset is not None:
        final_evaluation.evaluate(result.checkpoint, config.train_dir, config.data.data_dir, subset)
        accuracies = phases.evaluate_phases(result, subset)
        rows = phases.table_rows(accuracies)
        print(f"\n{report.table(['weights', 'top-1 accuracy', 'top-5 accuracy'], rows)}\n")
    path = picture.draw(result, accuracies)
    print(f"Picture: {path}", flush=True)
    run_reports.write_beside(config.train_dir)


PROGRAM = program.Program(
    "Trains a network in the subspace that its earlier weights span, by P-BFGS or P-SGD.",
    _define,
    _train,
    "terngrad_tf.bin.subspace_train",
)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()

"""Averages a run's weight snapshots, and evaluates the mean beside the run's own weights.

Example:
    python -m terngrad_tf.bin.average_snapshots --data_dir /tmp/digits \\
        --pretrained_weight_path /tmp/stage_1 --train_dir /tmp/average

The result in --train_dir is a run like others for evaluation programs and `subspace_train`.
"""

from terngrad_tf.bin.common import flags, program, train_flags
from terngrad_tf.phase_2.snapshot_average_config import AverageConfig
from terngrad_tf.training.configs.config import name_of, options
from terngrad_tf.training.configs.model_config import ModelConfig
from terngrad_tf.training.configs.run_config import CheckpointConfig, ClusterConfig, GradientConfig

_TEXTS = {
    "train_dir": (
        "Folder for the checkpoint. A folder with the same average is kept, another run is "
        "refused; nothing is ever deleted."
    ),
    "batch_size": "Images per batch, for batch-norm statistics.",
    "seed": "Fixes the order of the data for batch-norm statistics.",
}
# The network is the other run's.
_NO_FLAGS = tuple(
    name_of(field)
    for kind in (ModelConfig, CheckpointConfig, GradientConfig, ClusterConfig)
    for field in options(kind)
) + ("num_classes", "benchmark_mode", "input_queue_memory_factor", "max_steps", "epochs")


def _define(values):
    folders = {"data_dir": train_flags.FOLDERS["data_dir"], "train_dir": "/tmp/average_snapshots"}
    flags.define(
        values, AverageConfig, omit=_NO_FLAGS, texts=_TEXTS, pretrained_weight_path="", **folders
    )
    flags.define(values, train_flags.FinalEvaluation)


def _average(values):
    from terngrad_tf.phase_2 import phases, snapshot_average
    from terngrad_tf.training.evaluation import final_evaluation
    from terngrad_tf.training.logs import report

    config = flags.config_of(values, AverageConfig)
    checkpoint, start, number = snapshot_average.average_run(config)
    data = (config.data.data_dir, values.eval_subset)
    evaluate = final_evaluation.evaluate_weights
    found = {}
    if not start.is_snapshot:
        folder = str(start.folder)
        found["last weights"] = evaluate(start.path, folder, *data)
        if start.keeps_average:
            found["moving average"] = evaluate(start.path, folder, *data, average=True)
    found[f"mean of {number} snapshots"] = evaluate(checkpoint, config.train_dir, *data)
    rows = phases.table_rows({name: {0: result} for name, result in found.items()})
    print(f"\n{report.table(['weights', 'top-1 accuracy', 'top-5 accuracy'], rows)}\n")
    print(f"Checkpoint: {checkpoint}", flush=True)


PROGRAM = program.Program(
    "Averages the weight snapshots of a run, and evaluates the mean beside the run's own weights.",
    _define,
    _average,
)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()

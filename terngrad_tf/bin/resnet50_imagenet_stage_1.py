"""First phase of dimension-reduction training, by default of ResNet-50 on ImageNet.

Example:
    python -m terngrad_tf.bin.resnet50_imagenet_stage_1 --data_dir ~/imagenet \\
        --train_dir checkpoint_stage_1
    python -m terngrad_tf.bin.resnet50_imagenet_stage_1 --data_dir /tmp/digits --net lenet \\
        --dataset_name digits --batch_size 64 --initial_learning_rate 0.05 --nomixed_precision \\
        --train_dir checkpoint_stage_1

On several hosts, run the same command on each, with --worker_hosts and --task_id, a rank table,
Slurm or TF_CONFIG. Only the chief needs --train_dir, and evaluates.
"""

from terngrad_tf.bin.common import (
    cluster_flags,
    flags,
    program,
    run_reports,
    tf1_flags,
    train_flags,
)

# As in MindSpore's tutorial.
_DEFAULTS = {
    "dataset_name": "imagenet",
    "net": "resnet_50",
    "batch_size": 2048,
    "epochs": 70.0,
    "initial_learning_rate": 0.8,
    "learning_rate_decay_type": "linear",
    "warmup_epochs": 5.0,
    "decay_epochs": 90.0,
    "weight_decay": 1e-4,
    "label_smoothing": 0.1,
    "mixed_precision": True,
    "loss_scale": 1024.0,
    "save_epochs": 10.0,
    "max_to_keep": 10,
    "snapshot_per_epoch": 1.0,
    "snapshot_keep_max": 40,
    "train_dir": "checkpoint_stage_1",
}
_NO_FLAGS = ("max_steps", "save_iter", "save_interval_secs", "save_summaries_secs")


def _define(values):
    train_flags.define(values, omit=_NO_FLAGS, **_DEFAULTS)
    flags.define(values, train_flags.FinalEvaluation, texts=train_flags.EVALUATED_IF_THERE)
    cluster_flags.define(values)


def _train(values):
    from terngrad_tf import training
    from terngrad_tf.training.evaluation import final_evaluation

    tf1_flags.log_device_placement(values)
    config = tf1_flags.train_config(values)
    place = cluster_flags.arguments(values)
    subset = final_evaluation.find_subset(
        config.data, values.eval_subset, place["cluster_resolver"]
    )
    result = training.train(config, **place)
    if subset is not None:
        final_evaluation.evaluate(result.checkpoint, config.train_dir, config.data.data_dir, subset)
    if result.is_chief:
        run_reports.write_beside(config.train_dir)


PROGRAM = program.Program(
    "First phase of dimension-reduction training: trains a network and keeps weight snapshots.",
    _define,
    _train,
    "terngrad_tf.bin.resnet50_imagenet_stage_1",
)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()

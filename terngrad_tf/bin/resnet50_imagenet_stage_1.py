"""First phase of dimension-reduction training: ResNet-50 on ImageNet, or another pair.

Example:
    python -m terngrad_tf.bin.resnet50_imagenet_stage_1 --data_dir ~/imagenet \\
        --train_dir checkpoint_stage_1
    python -m terngrad_tf.bin.resnet50_imagenet_stage_1 --data_dir /tmp/digits --net lenet \\
        --dataset_name digits --batch_size 64 --initial_learning_rate 0.05 --nomixed_precision \\
        --train_dir checkpoint_stage_1

On several hosts the same command runs on each, with --worker_hosts and --task_id, a rank table,
Slurm or TF_CONFIG. The chief alone needs --train_dir, and evaluates.
"""

from terngrad_tf.bin import experiments, flags, host_flags, train_flags

# What differs from the training programs: the setting of MindSpore's tutorial.
_DEFAULTS = {
    "batch_size": 2048,
    "initial_learning_rate": 0.8,
    "learning_rate_decay_type": "linear",
    "warmup_epochs": 5.0,
    "decay_epochs": 90.0,
    "weight_decay": 1e-4,
    "label_smoothing": 0.1,
    "mixed_precision": True,
    "loss_scale": 1024.0,
    "snapshot_per_epoch": 1.0,
    "snapshot_keep_max": 40,
    "train_dir": "checkpoint_stage_1",
}
_MAX_TO_KEEP = 10


def _define(values):
    train_flags.define(values, dataset_name="imagenet", net="resnet_50")
    for name in ("max_steps", "save_iter"):
        delattr(values, name)
    for name, default in _DEFAULTS.items():
        values.set_default(name, default)
    flags.number(values, "epochs", 70.0, "Passes through the data.")
    flags.number(values, "save_epochs", 10.0, "Epochs between checkpoints.")
    flags.string(
        values,
        "eval_subset",
        None,
        "Part of the data set to evaluate on at the end. Default: test or validation.",
    )
    host_flags.define(values)


def _train(values):
    import dataclasses

    import tensorflow as tf

    from terngrad_tf import training
    from terngrad_tf.training import final_evaluation

    if values.log_device_placement:
        tf.debugging.set_log_device_placement(True)
    options = dataclasses.replace(
        flags.options(values, training.TrainOptions), max_to_keep=_MAX_TO_KEEP
    )
    subset = final_evaluation.subset_of(options.dataset_name, values.eval_subset)
    result = training.train(options, **host_flags.arguments(values))
    if result.is_chief:
        final_evaluation.evaluate(result.checkpoint, options.train_dir, options.data_dir, subset)


PROGRAM = experiments.Program(
    "First phase of dimension-reduction training: trains a network and keeps weight snapshots.",
    _define,
    _train,
    "terngrad_tf.bin.resnet50_imagenet_stage_1",
)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()

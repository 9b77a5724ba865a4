"""Flags of the evaluation programs."""

import slim_data
from terngrad_tf.bin import flags


def define(values, *, subset):
    """Defines the flags of an evaluation program.

    Args:
        values: `absl.flags.FlagValues` to define them in.
        subset: default of --subset.
    """
    flags.define_shared(values)
    names = ", ".join(sorted(slim_data.DATASETS))
    flags.string(values, "dataset_name", None, f"Data set: {names}. Default: the run's.")
    flags.string(values, "subset", subset, "Part of the data set to evaluate on.")
    flags.string(
        values,
        "checkpoint_dir",
        "/tmp/dataset_train",
        "The --train_dir of a run, or a folder with TensorFlow 1's Inception-v3 checkpoint.",
    )
    flags.string(values, "eval_dir", "/tmp/dataset_eval", "Folder for TensorBoard logs.")
    flags.integer(values, "batch_size", 32, "Images per batch.")
    flags.integer(
        values,
        "num_examples",
        None,
        "Evaluate at most so many examples. Default: the whole subset, each example once.",
    )
    flags.integer(
        values,
        "max_steps",
        None,
        "End after the checkpoint of this step. Default: the run's --max_steps.",
    )
    flags.integer(
        values,
        "eval_interval_secs",
        3600,
        "Seconds between looks for a new checkpoint; that of the last step is taken at once.",
    )
    flags.boolean(values, "run_once", False, "Evaluate the newest checkpoint and end.")
    flags.boolean(values, "restore_avg_var", True, "Evaluate the moving averages of the weights.")
    flags.integer(
        values,
        "tower",
        -1,
        "Worker whose copy of the variables to evaluate, -1 for any. All workers hold the same "
        "values; a number that the run has no worker for is refused.",
    )
    flags.string(values, "device", "/gpu:0", "Device; the CPU where it does not exist.")
    flags.integer(
        values,
        "input_queue_memory_factor",
        16,
        "As for training; evaluation reads in order and keeps no queue.",
    )
    _define_facts_of_the_run(values)


def _define_facts_of_the_run(values):
    for define, name, what in (
        (flags.string, "net", "Network"),
        (flags.integer, "image_size", "Pixels of a side"),
        (flags.integer, "seed", "Seed"),
        (flags.number, "weight_decay", "L2 factor"),
        (flags.number, "dropout_keep_prob", "Probability of keeping a unit in training"),
        (flags.integer, "size_to_binarize", "Elements from which gradients are ternary"),
    ):
        define(values, name, None, f"{what}; must be the run's, which is the default.")

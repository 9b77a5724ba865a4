"""Flags of the training and evaluation programs; each becomes one field of the options."""

from absl import flags

import slim_data
from terngrad_tf import models


def define_train(values, *, dataset_name, net):
    """Defines the flags of a training program.

    Args:
        values: `absl.flags.FlagValues` to define them in.
        dataset_name: default of --dataset_name.
        net: default of --net.
    """
    _define_shared(values)
    names = ", ".join(sorted(slim_data.DATASETS))
    _string(values, "dataset_name", dataset_name, f"Data set: {names}.")
    _string(values, "subset", "train", "Part of the data set to train on.")
    _string(
        values,
        "train_dir",
        "/tmp/dataset_train",
        "Folder for checkpoints and TensorBoard logs. A folder that holds the same run is resumed, "
        "another run is refused; nothing is ever deleted.",
    )
    _string(values, "net", net, f"Network: {', '.join(models.available())}.")
    _integer(values, "image_size", None, "Pixels of a side. Default: the network's usual size.")
    _integer(
        values,
        "batch_size",
        32,
        "Images per step over all workers together; divisible by --num_nodes.",
    )
    _integer(values, "max_steps", 370000, "Steps of the whole run.")
    _integer(values, "save_iter", 5000, "Steps between checkpoints.")
    _integer(values, "seed", 1, "Fixes initial weights, order of the data and rounding.")
    _integer(
        values,
        "input_queue_memory_factor",
        16,
        "The shuffle buffer holds 1024 times as many records.",
    )

    _string(values, "optimizer", "momentum", "momentum, adam, gd or rmsprop.")
    _float(values, "momentum", 0.9, "For --optimizer momentum and rmsprop.")
    _float(values, "initial_learning_rate", 0.01, "Learning rate at step 0.")
    _string(
        values,
        "learning_rate_decay_type",
        "exponential",
        "fixed, exponential (in stairs) or polynomial (square root, to 0 at --max_steps). "
        "With --optimizer adam the rate is fixed.",
    )
    _float(values, "num_epochs_per_decay", 20.0, "Epochs between exponential decays.")
    _float(values, "learning_rate_decay_factor", 0.1, "Factor of each exponential decay.")
    _float(values, "weight_decay", 0.0005, "L2 factor d: d / 2 * sum(w^2) joins the loss.")
    _float(
        values,
        "dropout_keep_prob",
        0.5,
        "Probability of keeping a unit where the network drops units.",
    )

    _integer(
        values,
        "num_gpus",
        None,
        "GPUs the workers run on, 0 for the CPU. Default: all there are. Where there is none, "
        "workers run on the CPU.",
    )
    _integer(
        values,
        "num_nodes",
        None,
        "Workers; worker i runs on GPU i modulo --num_gpus. Default: --num_gpus, or 1.",
    )
    _integer(values, "grad_bits", 32, "1: workers send ternary gradients; 32: float.")
    _float(
        values,
        "clip_factor",
        0.0,
        "Clip gradients at so many standard deviations before rounding; 0: no clipping.",
    )
    _integer(
        values,
        "size_to_binarize",
        1,
        "Variables with fewer elements keep float gradients; 1: all are ternary.",
    )
    _bool(values, "quantize_logits", False, "Whether the last layer's gradients are ternary too.")
    _string(
        values,
        "rounding",
        "correlated",
        "correlated: workers share their random numbers, for less variance; independent: as in "
        "the paper.",
    )
    _string(
        values,
        "wire",
        "auto",
        "How ternary gradients travel between hosts: allgather, alltoall, lanes, both_ways or "
        "auto, the one with the fewest bytes.",
    )
    _bool(values, "log_device_placement", False, "Print the device of every operation.")


def define_eval(values, *, subset):
    """Defines the flags of an evaluation program.

    Args:
        values: `absl.flags.FlagValues` to define them in.
        subset: default of --subset.
    """
    _define_shared(values)
    _string(values, "dataset_name", None, "Data set: mnist or digits. Default: the run's.")
    _string(values, "subset", subset, "Part of the data set to evaluate on.")
    _string(values, "checkpoint_dir", "/tmp/dataset_train", "The --train_dir of a run.")
    _string(values, "eval_dir", "/tmp/dataset_eval", "Folder for TensorBoard logs.")
    _string(values, "net", None, "Network; must be the run's, which is the default.")
    _integer(
        values, "image_size", None, "Pixels of a side; must be the run's, which is the default."
    )
    _integer(values, "batch_size", 32, "Images per batch.")
    _integer(
        values,
        "num_examples",
        None,
        "Evaluate at most so many examples. Default: the whole subset, each example once.",
    )
    _integer(
        values,
        "max_steps",
        None,
        "End after the checkpoint of this step. Default: the run's --max_steps.",
    )
    _integer(values, "eval_interval_secs", 3600, "Seconds between looks for a new checkpoint.")
    _bool(values, "run_once", False, "Evaluate the newest checkpoint and end.")
    _bool(values, "restore_avg_var", True, "Evaluate the moving averages of the weights.")
    _string(values, "device", "/gpu:0", "Device; the CPU where it does not exist.")


def options(values, options_class):
    """Makes an options object of the flags that are its fields.

    Args:
        values: parsed `absl.flags.FlagValues`.
        options_class: `TrainOptions` or `EvalOptions`.
    """
    fields = options_class.__dataclass_fields__
    return options_class(**{name: values[name].value for name in values if name in fields})


def _define_shared(values):
    _string(values, "data_dir", "/tmp/mydata", "Folder with the TFRecords.")
    _integer(values, "num_readers", 4, "Files read in parallel.")


def _string(values, name, default, text):
    flags.DEFINE_string(name, default, text, flag_values=values)


def _integer(values, name, default, text):
    flags.DEFINE_integer(name, default, text, flag_values=values)


def _float(values, name, default, text):
    flags.DEFINE_float(name, default, text, flag_values=values)


def _bool(values, name, default, text):
    flags.DEFINE_bool(name, default, text, flag_values=values)

"""Flags of the training programs."""

import dataclasses

import slim_data
from terngrad_tf import models
from terngrad_tf.bin import flags


def define(values, *, dataset_name, net):
    """Defines the flags of a training program.

    Args:
        values: `absl.flags.FlagValues` to define them in.
        dataset_name: default of --dataset_name.
        net: default of --net.
    """
    flags.define_shared(values)
    _define_run(values, dataset_name, net)
    _define_input(values)
    _define_optimization(values)
    _define_start(values)
    _define_snapshots(values)
    _define_workers(values)


def options(values):
    """Makes `TrainOptions` of parsed flags.

    Args:
        values: parsed `absl.flags.FlagValues`.

    Raises:
        UserError: a number outside its range.
    """
    from terngrad_tf import training

    options = flags.options(values, training.TrainOptions)
    if options.fine_tune and not values["net"].present:
        return dataclasses.replace(options, net=None)
    return options


def _define_run(values, dataset_name, net):
    names = ", ".join(sorted(slim_data.DATASETS))
    flags.string(values, "dataset_name", dataset_name, f"Data set: {names}.")
    flags.string(values, "subset", "train", "Part of the data set to train on.")
    flags.integer(
        values,
        "num_classes",
        None,
        "Classes that your own images have, such as those that slim_data.build_image_data wrote, "
        "without the background. Default: the data set's.",
    )
    flags.string(
        values,
        "train_dir",
        "/tmp/dataset_train",
        "Folder for checkpoints and TensorBoard logs. A folder that holds the same run is resumed, "
        "another run is refused; nothing is ever deleted.",
    )
    nets = ", ".join(models.available())
    flags.string(
        values,
        "net",
        net,
        f"Network: {nets}. With --fine_tune the default is that of the weights to start from.",
    )
    flags.integer(
        values,
        "image_size",
        None,
        "Pixels of a side. Default: the network's usual size; where --fine_tune tells the network, "
        "that of the weights to start from.",
    )
    flags.integer(
        values,
        "batch_size",
        32,
        "Images per step over all workers together; divisible by --num_nodes.",
    )
    flags.integer(values, "max_steps", 370000, "Steps of the whole run.")
    flags.integer(
        values,
        "save_iter",
        5000,
        "Steps between checkpoints, and between TensorBoard's histograms of weights and gradients.",
    )
    flags.integer(
        values,
        "save_tower",
        -1,
        "Worker whose copy of the variables to save, -1 for all. All workers hold the same "
        "values, so a checkpoint holds them once either way.",
    )
    flags.integer(values, "seed", 1, "Fixes initial weights, order of the data and rounding.")
    flags.boolean(values, "log_device_placement", False, "Print the device of every operation.")


def _define_input(values):
    flags.integer(
        values,
        "input_queue_memory_factor",
        16,
        "The shuffle buffer holds 1024 times as many records.",
    )
    flags.boolean(
        values,
        "benchmark_mode",
        False,
        "Train on grey images with random labels, without reading --data_dir.",
    )


def _define_optimization(values):
    flags.string(values, "optimizer", "momentum", "momentum, adam, gd or rmsprop.")
    flags.number(values, "momentum", 0.9, "For --optimizer momentum and rmsprop.")
    flags.number(values, "initial_learning_rate", 0.01, "Learning rate at step 0.")
    flags.string(
        values,
        "learning_rate_decay_type",
        "exponential",
        "fixed, exponential (in stairs), linear (after --warmup_epochs, to 0 at --decay_epochs) or "
        "polynomial (square root, to 0 at --max_steps). "
        "With --optimizer adam the rate is fixed.",
    )
    flags.number(values, "num_epochs_per_decay", 20.0, "Epochs between exponential decays.")
    flags.number(values, "learning_rate_decay_factor", 0.1, "Factor of each exponential decay.")
    flags.number(
        values,
        "warmup_epochs",
        0.0,
        "Epochs over which --learning_rate_decay_type linear rises from 0 to the full rate.",
    )
    flags.number(
        values,
        "decay_epochs",
        None,
        "Epoch at which --learning_rate_decay_type linear reaches 0. Default: that of --max_steps.",
    )
    flags.boolean(
        values,
        "mixed_precision",
        False,
        "Compute in float16 and scale the loss; weights stay float32. For GPUs.",
    )
    flags.number(
        values,
        "loss_scale",
        None,
        "Factor of the loss whose gradient is taken and divided again, such as 1024; an overflow "
        "then ends the run. 0, or where it has no default: with --mixed_precision a factor that "
        "adapts and leaves out steps that overflow, otherwise none.",
    )
    flags.number(values, "weight_decay", 0.0005, "L2 factor d: d / 2 * sum(w^2) joins the loss.")
    flags.number(
        values,
        "dropout_keep_prob",
        0.5,
        "Probability of keeping a unit where the network drops units.",
    )
    flags.number(
        values,
        "label_smoothing",
        None,
        "Share of each target that is spread evenly over all classes. Default: the network's, 0.1 "
        "for inception_v3 and 0 for others.",
    )


def _define_start(values):
    flags.string(
        values,
        "pretrained_model_checkpoint_path",
        "",
        "Checkpoint to start from, or folder of a run, whose newest checkpoint is taken; or the "
        "Inception-v3 checkpoint of TensorFlow 1, such as inception-v3/model.ckpt-157585. The run "
        "goes on from its step; see --fine_tune. Once --train_dir holds a checkpoint, that one is "
        "resumed.",
    )
    flags.boolean(
        values,
        "fine_tune",
        False,
        "Take the weights of --pretrained_model_checkpoint_path but those of the layers that tell "
        "the classes, which start anew, as do optimizer and step.",
    )


def _define_snapshots(values):
    flags.number(
        values,
        "snapshot_per_epoch",
        None,
        "Weight snapshots an epoch, for training in their subspace later; 0.5 takes one every two "
        "epochs. They lie in checkpoint_pca in --train_dir. Default: none are taken.",
    )
    flags.integer(
        values,
        "snapshot_every_steps",
        None,
        "Steps between snapshots, instead of --snapshot_per_epoch.",
    )
    flags.integer(values, "snapshot_start_epoch", 0, "Epochs at the start without snapshots.")
    flags.integer(
        values,
        "snapshot_keep_max",
        None,
        "Newest snapshots kept; older ones are removed. Default: all are kept.",
    )


def _define_workers(values):
    flags.define_workers(values)
    flags.integer(values, "grad_bits", 32, "1: workers send ternary gradients; 32: float.")
    flags.number(
        values,
        "clip_factor",
        0.0,
        "Clip gradients at so many standard deviations before rounding; 0: no clipping.",
    )
    flags.integer(
        values,
        "floating_grad_epoch",
        0,
        "Of each so many epochs the last has float gradients; 0: none has.",
    )
    flags.integer(
        values,
        "size_to_binarize",
        1,
        "Variables with fewer elements keep float gradients; 1: all are ternary.",
    )
    flags.boolean(
        values, "quantize_logits", False, "Whether the last layer's gradients are ternary too."
    )
    flags.boolean(
        values,
        "use_encoding",
        True,
        "Ternary gradients always travel encoded, which loses nothing; False is refused.",
    )
    flags.string(
        values,
        "rounding",
        "correlated",
        "correlated: workers share their random numbers, for less variance; independent: as in "
        "the paper.",
    )
    flags.string(
        values,
        "wire",
        "auto",
        "How ternary gradients travel between hosts: allgather, alltoall, allreduce, "
        "bidirectional or auto, the one with the fewest bytes.",
    )

"""Flags of training in a subspace."""

import slim_data
from terngrad_tf.bin import flags, host_flags


def define(values):
    """Defines the flags in `values`, an `absl.flags.FlagValues`."""
    flags.define_shared(values)
    _define_run(values)
    _define_subspace(values)
    _define_optimizer(values)
    _define_workers(values)
    host_flags.define(values)


def _define_run(values):
    flags.string(
        values,
        "pretrained_weight_path",
        "",
        "What to start from: the --train_dir of a run (its newest checkpoint), one of its "
        "checkpoints, or one of its weight snapshots.",
    )
    flags.string(
        values,
        "train_dir",
        "/tmp/subspace_train",
        "Folder for checkpoints, TensorBoard logs and the picture. A folder that holds the same "
        "run is resumed, another run is refused; nothing is ever deleted.",
    )
    names = ", ".join(sorted(slim_data.DATASETS))
    flags.string(values, "dataset_name", None, f"Data set: {names}. Default: the run's.")
    flags.string(values, "subset", "train", "Part of the data set to train on.")
    flags.string(
        values,
        "eval_subset",
        None,
        "Part of the data set to evaluate on at the end. Default: test or validation.",
    )
    flags.integer(values, "epochs", 2, "Passes through the data.")
    flags.integer(
        values,
        "batch_size",
        512,
        "Images per step over all workers together; divisible by --num_nodes. Large ones help.",
    )
    flags.integer(values, "seed", 1, "Fixes order of the data and rounding.")


def _define_subspace(values):
    flags.string(
        values,
        "pca_mat_path",
        "",
        "File of the subspace, .safetensors or .npy. Where it is missing it is computed from the "
        "snapshots and written. Default: subspace.safetensors in --train_dir.",
    )
    flags.string(
        values,
        "weight_load_dir",
        "",
        "Folder with the weight snapshots. Default: checkpoint_pca of the run to start from.",
    )
    flags.number(
        values,
        "timeout",
        1800.0,
        "In a cluster: seconds that the other workers wait for the chief's subspace.",
    )
    flags.integer(
        values,
        "n_components",
        None,
        "Dimension of the subspace, below the number of snapshots. Default: that of the file, or "
        "32 where it is computed.",
    )
    flags.boolean(
        values, "start_at_mean", False, "Start from the mean of the snapshots, their average."
    )


def _define_optimizer(values):
    flags.string(
        values,
        "optimizer",
        "bfgs",
        "bfgs (quasi-Newton with a line search) or sgd (gradient descent with momentum), both "
        "inside of the subspace.",
    )
    flags.number(values, "rho", 0.55, "For bfgs: factor between the lengths tried.")
    flags.number(
        values, "sigma", 0.4, "For bfgs: part of the linear decrease that a step must reach."
    )
    flags.number(values, "alpha", 0.001, "For bfgs: step length outside of the subspace; 0: none.")
    flags.number(values, "gamma", 0.9, "For bfgs: momentum outside of the subspace.")
    flags.integer(
        values,
        "residual_every",
        1,
        "For bfgs: steps from one step outside of the subspace to the next.",
    )
    flags.number(
        values,
        "learning_rate",
        None,
        "For sgd: rate at step 0; it falls in a line to 0. Default: the rate at step 0 of the run "
        "to start from.",
    )
    flags.number(values, "momentum", 0.9, "For sgd: momentum.")
    flags.string(
        values,
        "boost_config",
        "",
        "JSON file with MindSpore's boost_config_dict, where boost.dim_reduce is true; flags on "
        "the command line come before it. Other features may be configured, but must be off.",
    )
    flags.string(
        values,
        "boost_level",
        "O1",
        "MindSpore's boost_level: O1 or O2, which are the same where dimensions are reduced.",
    )


def _define_workers(values):
    flags.boolean(
        values,
        "shard_basis",
        False,
        "In a cluster: each worker process holds a part of the basis alone, for one that does not "
        "fit. Gradients then travel as float32.",
    )
    flags.define_workers(values)
    flags.integer(
        values,
        "grad_bits",
        1,
        "With --alpha above 0, 1: workers send ternary gradients outside of the subspace; 32: "
        "float. Inside they send a number a component either way.",
    )
    flags.number(
        values,
        "clip_factor",
        2.5,
        "With --grad_bits 1: clip gradients at so many standard deviations; 0: no clipping.",
    )

"""Trains LeNet on digits with ternary and with float gradients, then in a subspace; compares.

Example:
    python -m terngrad_tf.bin.quickstart --output_dir /tmp/quickstart
"""

import pathlib

from absl import flags

from terngrad_tf.bin import program

DESCRIPTION = (
    "Trains LeNet on handwritten digits by several virtual workers, once with ternary and once "
    "with float gradients, then goes on in the subspace of the ternary run's weight snapshots, and "
    "compares test accuracy and bytes sent."
)

DATASET = "digits"
TRAIN_SHARDS = 4
NUM_CHECKPOINTS = 5
RUNS = {"ternary": 1, "float": 32}
NUM_SNAPSHOTS = 40
MAX_COMPONENTS = 32
SUBSPACE_BATCH_SIZE = 512


def define_flags(values):
    """Defines the program's flags in `values`, an `absl.flags.FlagValues`."""
    flags.DEFINE_string(
        "output_dir",
        "quickstart_output",
        "Folder for the data, the runs, the results. What is there is used or resumed; nothing is "
        "deleted.",
        flag_values=values,
    )
    flags.DEFINE_integer("num_nodes", 4, "Virtual workers.", flag_values=values)
    flags.DEFINE_integer("max_steps", 400, "Training steps of each run.", flag_values=values)
    flags.DEFINE_integer(
        "batch_size", 64, "Images per step over all workers together.", flag_values=values
    )
    flags.DEFINE_float("learning_rate", 0.01, "Learning rate at step 0.", flag_values=values)
    flags.DEFINE_integer("seed", 1, "Fixes weights, data order, rounding.", flag_values=values)


def main(argv, **options):
    """Runs the program; `argv` is its command line. Returns the exit status.

    Args:
        argv: list of str, the program's name first.
        **options: as for `program.run`.
    """
    return program.run(DESCRIPTION, define_flags, _main, argv, **options)


def _main(values):
    import slim_data
    from terngrad_tf import training
    from terngrad_tf.training import checks, report

    # A wrong number is told before any data is written.
    checks.ranges(
        values,
        {
            "num_nodes": checks.integers(1, SUBSPACE_BATCH_SIZE),
            # Two snapshots are the fewest that span a direction.
            "max_steps": checks.integers(2, checks.COUNT.most),
            "batch_size": checks.BATCH,
            "learning_rate": checks.FACTOR,
            "seed": checks.SEED,
        },
    )

    output = pathlib.Path(values.output_dir)
    data_dir = output / "data"
    _say(f"writing scikit-learn's digits as TFRecords to {data_dir}")
    slim_data.convert(DATASET, str(data_dir), shard=True, train_shards=TRAIN_SHARDS, report=print)

    rows, losses, accuracies = [], {}, {}
    for name, grad_bits in RUNS.items():
        options = training.TrainOptions(
            train_dir=str(output / name),
            data_dir=str(data_dir),
            dataset_name=DATASET,
            batch_size=values.batch_size,
            max_steps=values.max_steps,
            save_iter=max(1, values.max_steps // NUM_CHECKPOINTS),
            max_to_keep=NUM_CHECKPOINTS,
            num_nodes=values.num_nodes,
            grad_bits=grad_bits,
            clip_factor=2.5,
            quantize_logits=True,
            initial_learning_rate=values.learning_rate,
            learning_rate_decay_type="polynomial",
            seed=values.seed,
            snapshot_every_steps=(
                max(1, values.max_steps // NUM_SNAPSHOTS) if name == "ternary" else None
            ),
        )
        _say(f"training LeNet by {values.num_nodes} workers with {name} gradients")
        training.train(options)
        scalars = report.read_scalars(options.train_dir)
        losses[name] = scalars["entropy_loss"]
        _say(f"evaluating the checkpoints of {name} on the test images")
        accuracies[name] = _evaluate_all(options, str(output / f"{name}_eval"))
        rows.append(_row(name, options.batch_size, scalars, accuracies[name]))

    picture = _train_in_subspace(values, output, rows, losses, accuracies)
    plot = output / "curves.png"
    report.plot(
        plot,
        {
            "Training": ("cross-entropy", "log", losses),
            "Test": (
                "accuracy / %",
                "linear",
                {
                    name: {step: 100 * value for step, value in curve.items()}
                    for name, curve in accuracies.items()
                },
            ),
        },
    )
    header = ["gradients", "test accuracy", "received bytes/step/worker", "compression", "time"]
    print(f"\n{report.table(header, rows)}\n")
    print(f"Curves: {plot}")
    print(f"Subspace: {picture}")
    print(f"TensorBoard: tensorboard --logdir {output}")
    print(f"Checkpoints: {output / 'ternary'}, {output / 'float'}, {output / 'subspace'}")


def _train_in_subspace(values, output, rows, losses, accuracies):
    """Second phase of the ternary run; adds to the results and returns the picture's path."""
    from terngrad_tf import training
    from terngrad_tf.training import report, subspace_picture

    name = "ternary, then in subspace"
    num_snapshots = len(list((output / "ternary" / "checkpoint_pca").iterdir()))
    options = training.SubspaceOptions(
        train_dir=str(output / "subspace"),
        data_dir=str(output / "data"),
        pretrained_weight_path=str(output / "ternary"),
        n_components=min(MAX_COMPONENTS, num_snapshots - 1),
        alpha=0.0,
        batch_size=SUBSPACE_BATCH_SIZE // values.num_nodes * values.num_nodes,
        num_nodes=values.num_nodes,
        seed=values.seed,
    )
    _say(f"training the ternary run further in the {options.n_components} main directions it took")
    result = training.train_in_subspace(options)
    scalars = report.read_scalars(options.train_dir)
    _say("evaluating the checkpoints of the second phase on the test images")
    accuracy = _evaluate_all(options, str(output / "subspace_eval"))
    rows.append(_row(name, options.batch_size, scalars, accuracy))
    for curves, curve in ((losses, scalars["entropy_loss"]), (accuracies, accuracy)):
        curves[name] = {values.max_steps + step: value for step, value in curve.items()}
    _say("drawing the way through the subspace")
    return subspace_picture.draw(options, result)


def _evaluate_all(options, eval_dir):
    """Test accuracy, by step, of every checkpoint kept."""
    import tensorflow as tf

    from terngrad_tf import training
    from terngrad_tf.training import evaluator, run_folder

    run = run_folder.read(options.train_dir)
    eval_options = training.EvalOptions(
        checkpoint_dir=options.train_dir,
        eval_dir=eval_dir,
        data_dir=options.data_dir,
        batch_size=120,
        device="/cpu:0",
    )
    state = tf.train.get_checkpoint_state(options.train_dir)
    results = [
        evaluator.evaluate_checkpoint(path, run, eval_options)
        for path in state.all_model_checkpoint_paths
    ]
    return {result.step: result.precision_at_1 for result in results}


def _row(name, batch_size, scalars, accuracy):
    from terngrad_tf.training import report

    last = max(accuracy)
    return [
        name,
        f"{100 * accuracy[last]:.2f} %",
        f"{scalars['received_bytes'][last]:,.0f}",
        f"{scalars['compression_ratio'][last]:.1f}",
        f"{report.training_seconds(scalars, batch_size):.0f} s",
    ]


def _say(text):
    print(f"== {text}", flush=True)


def run():
    """Entry point of the console command."""
    program.run_and_exit(main)


if __name__ == "__main__":
    run()

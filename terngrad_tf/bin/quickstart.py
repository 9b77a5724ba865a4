"""Trains LeNet on digits with ternary and float gradients, then in a subspace, and compares.

Example:
    python -m terngrad_tf.bin.quickstart --output_dir /tmp/quickstart
"""

import contextlib
import dataclasses
import io
import pathlib
from typing import Any

from slim_data.common.extras import check_installed
from terngrad_tf.bin.common import flags, program, run_reports
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import Config, configuration, option

_DESCRIPTION = (
    "Trains LeNet on handwritten digits by several replicas, once with ternary and once "
    "with float gradients, then continues in the subspace of the ternary run's weight snapshots, "
    "and compares test accuracy and bytes sent."
)

DATASET = "digits"
TRAIN_SHARDS = 4
NUM_CHECKPOINTS = 5
LINE_STEPS = 50
RUNS = {"ternary": 1, "float": 32}
NUM_SNAPSHOTS = 40
MAX_COMPONENTS = 32
SUBSPACE_BATCH_SIZE = 512
SUBSPACE = "subspace"
LINK = "100 Mbit/s"
# Colours of the runs.
COLOURS = {"ternary": "#0b62c4", "float": "#b3471f", SUBSPACE: "#7b3fa0"}
_EXPLANATION = """\
accuracy    of the last weights on the test images; one of 360 images is 0.28 %
averaged    of the moving average of the weights, which changes more slowly
bytes/step  that a replica receives in a step if each is a host of its own
fewer       times fewer bytes than float32
Mbit/s      time of these bytes on a link of this rate
time        of training here: gradients do not leave one machine, so that
            rounding them only takes time
subspace    more steps from the ternary run's averaged weights, along the main
            directions in which its weights moved: docs/phase_2.md"""
_NEXT = """\
Next:
  your own model    make and compile it in the scope of TernGradStrategy:
                    docs/getting_started.md, and the folder examples
  two processes     terngrad run -np 2 train.py
  two machines      terngrad check -H host1,host2
                    terngrad run -H host1,host2 train.py
  these curves      tensorboard --logdir {folder}
  a report          {folder}/report.html, in a browser"""


@configuration
class QuickstartConfig(Config):
    """Options of the program."""

    output_dir: str = option(
        "quickstart_output",
        "Folder for the data, the runs, the results. Existing parts are used or resumed; nothing "
        "is deleted.",
        checks.folder,
    )
    num_nodes: int = option(4, "Virtual workers.", checks.integers(1, SUBSPACE_BATCH_SIZE))
    # One direction needs two snapshots.
    max_steps: int = option(
        400, "Training steps of each run.", checks.integers(2, checks.COUNT.most)
    )
    batch_size: int = option(64, "Images per step over all workers together.", checks.BATCH)
    learning_rate: float = option(0.01, "Learning rate at step 0.", checks.FACTOR)
    seed: int = option(1, "Fixes weights, data order, rounding.", checks.SEED)


def _define(values):
    flags.define(values, QuickstartConfig)


@dataclasses.dataclass
class Results:
    """Rows of the table, and curves by their labels: values by step, or losses by second."""

    rows: list[list[str]] = dataclasses.field(default_factory=list)
    losses: dict[str, Any] = dataclasses.field(default_factory=dict)
    losses_over_link: dict[str, Any] = dataclasses.field(default_factory=dict)
    accuracies: dict[str, dict[int, float]] = dataclasses.field(default_factory=dict)


def _main(values):
    import slim_data
    from terngrad_tf.training.logs import screen

    # Refuses an invalid number before data is written.
    config = flags.config_of(values, QuickstartConfig)
    check_installed("sklearn", "matplotlib", "plotly")
    output = pathlib.Path(config.output_dir)
    data_dir = output / "data"
    _say(f"writing scikit-learn's digits as TFRecords to {data_dir}")
    slim_data.convert(DATASET, str(data_dir), shard=True, train_shards=TRAIN_SHARDS, report=_say)

    results = Results()
    with screen.show():
        for name, grad_bits in RUNS.items():
            _train(config, output, name, grad_bits, results)
        picture = _train_in_subspace(config, output, results)
        plot = _plot(output, results)
    _conclude(output, results.rows, {"Curves": plot, "Subspace": picture})


def _train(config, output, name, grad_bits, results):
    """Trains and evaluates a run; adds to the results."""
    import tensorflow as tf

    from terngrad_tf import training
    from terngrad_tf.common import tags
    from terngrad_tf.training.logs import report

    snapshot_steps = max(1, config.max_steps // NUM_SNAPSHOTS) if grad_bits == 1 else None
    run = training.TrainConfig(
        train_dir=str(output / name),
        max_steps=config.max_steps,
        seed=config.seed,
        data=training.TrainingDataConfig(
            data_dir=str(output / "data"), dataset_name=DATASET, batch_size=config.batch_size
        ),
        optimizer=training.OptimizerConfig(
            initial_learning_rate=config.learning_rate, learning_rate_decay_type="polynomial"
        ),
        gradients=training.GradientConfig(grad_bits=grad_bits, rotate=True, quantize_logits=True),
        checkpoints=training.CheckpointConfig(
            save_iter=max(1, config.max_steps // NUM_CHECKPOINTS),
            max_to_keep=NUM_CHECKPOINTS,
            log_freq=LINE_STEPS,
        ),
        snapshots=training.SnapshotConfig(every_steps=snapshot_steps),
        cluster=training.ClusterConfig(num_nodes=config.num_nodes),
    )
    _say(f"training LeNet by {config.num_nodes} replicas with {name} gradients")
    training.train(run)
    scalars = report.read_scalars(run.train_dir)
    _say(f"evaluating the checkpoints of the {name} run on the test images")
    paths = tf.train.get_checkpoint_state(run.train_dir).all_model_checkpoint_paths
    last = _evaluate(run, paths, output / f"{name}_eval")
    averages = _evaluate(run, paths[-1:], output / f"{name}_eval_average", average=True)
    average = _percent(averages[config.max_steps])
    _say(f"accuracy: {_percent(last[max(last)])}, of averaged weights {average}")
    results.rows.append(_row(name, run.data.batch_size, scalars, last, average))
    results.losses[name] = scalars[tags.CROSS_ENTROPY]
    results.losses_over_link[name] = report.seconds_on_link(
        scalars, config.batch_size, report.LINKS[LINK]
    )
    results.accuracies[f"{name}, last weights"] = last
    results.accuracies[f"{name}, moving average"] = averages


def _evaluate(config, paths, eval_dir, average=False):
    """Returns the test accuracy of checkpoints by step."""
    import tensorflow as tf

    from terngrad_tf.training.evaluation import final_evaluation

    # TensorFlow warns about a separate reading function for each evaluation.
    tf.get_logger().setLevel("ERROR")
    with _quiet():
        found = [
            final_evaluation.evaluate_weights(
                *(path, config.train_dir, config.data.data_dir), eval_dir=eval_dir, average=average
            )
            for path in paths
        ]
    return {result.step: result.precision_at_1 for result in found}


def _train_in_subspace(config, output, results):
    """Trains the ternary run's second phase; adds to the results and returns the picture."""
    from terngrad_tf import phase_2, training
    from terngrad_tf.common import tags
    from terngrad_tf.phase_2 import phases
    from terngrad_tf.phase_2 import picture as subspace_picture
    from terngrad_tf.training.logs import report

    name = f"ternary, then in {SUBSPACE}"
    num_snapshots = len(list((output / "ternary" / "checkpoint_pca").iterdir()))
    run = phase_2.SubspaceConfig(
        train_dir=str(output / SUBSPACE),
        seed=config.seed,
        data=phase_2.SubspaceDataConfig(
            data_dir=str(output / "data"),
            batch_size=SUBSPACE_BATCH_SIZE // config.num_nodes * config.num_nodes,
        ),
        basis=phase_2.BasisConfig(
            pretrained_weight_path=str(output / "ternary"),
            n_components=min(MAX_COMPONENTS, num_snapshots - 1),
        ),
        optimizer=phase_2.SubspaceOptimizerConfig(alpha=0.0),
        cluster=training.ClusterConfig(num_nodes=config.num_nodes),
    )
    num_components = run.basis.n_components
    _say(f"training the ternary run further in the {num_components} main directions it took")
    with _quiet():  # in the format of MindSpore's programs
        result = phase_2.train_in_subspace(run)
    scalars = report.read_scalars(run.train_dir)
    _say("evaluating the checkpoints of the subspace run on the test images")
    steps_before = result.start.steps_before
    with _quiet():
        evaluated = phases.evaluate_phases(result)
    figures = list(evaluated[phases.PHASE_2].values())
    # It starts at the moving average of phase 1, and keeps none.
    first, *others = ((steps_before + one.step, one.precision_at_1) for one in figures)
    curve = dict(others)
    _say(f"accuracy: {_percent(curve[max(curve)])}")
    results.rows.append(_row(SUBSPACE, run.data.batch_size, scalars, curve, "-", steps_before))
    # Both curves begin at the initial weights; a loss belongs to the weights before its step.
    results.losses[name] = {step - 1: value for step, value in scalars[tags.CROSS_ENTROPY].items()}
    results.accuracies[f"{name}, last weights"] = {steps_before: first[1], **curve}
    _say("drawing the way through the subspace")
    return subspace_picture.draw(result, evaluated)


def _plot(output, results):
    """Draws the curves; returns the picture's path."""
    from terngrad_tf.training.logs import report

    accuracies = results.accuracies
    over_link = f"Training over {LINK}"
    plot = output / "curves.png"
    report.plot(
        plot,
        {
            over_link: ("loss", "log", results.losses_over_link),
            "Training by steps": ("loss", "log", results.losses),
            "Test": (
                "accuracy / %",
                "linear",
                {
                    name: {step: 100 * value for step, value in curve.items()}
                    for name, curve in accuracies.items()
                },
            ),
        },
        x_labels={over_link: f"seconds, with the bytes of each step at {LINK}"},
        styles={name: _style(name) for name in (*results.losses, *accuracies)},
        errors={name: _errors(curve) for name, curve in accuracies.items()},
    )
    return plot


def _row(name, batch_size, scalars, accuracy, average, steps_before=0):
    from terngrad_tf.common import tags
    from terngrad_tf.training.logs import report

    last = max(accuracy)
    received, ratio = (scalars[t][last] for t in (tags.RECEIVED_BYTES, tags.COMPRESSION_RATIO))
    return [
        name,
        _percent(accuracy[last]),
        average,
        f"{received:,.0f}",
        f"{ratio:.1f}" if ratio < 100 else f"{ratio:,.0f}",
        *(f"{1e3 * 8 * received / rate:.1f} ms" for rate in report.LINKS.values()),
        f"{report.training_seconds(scalars, batch_size, steps_before):.0f} s",
    ]


def _percent(fraction):
    return f"{100 * fraction:.2f} %"


def _style(name):
    """Returns how a curve is drawn: in the run's colour, averages as a diamond."""
    run = SUBSPACE if SUBSPACE in name else name.partition(",")[0]
    return {"color": COLOURS[run], "marker": "D" if "average" in name else "."}


def _errors(curve):
    """Returns the standard errors of a curve of test accuracies, in %."""
    import slim_data

    number = slim_data.info(DATASET).splits["test"]
    return {step: 100 * (p * (1 - p) / number) ** 0.5 for step, p in curve.items()}


def _conclude(output, rows, pictures):
    from terngrad_tf.training.logs import report

    header = ["gradients", "accuracy", "averaged", "bytes/step", "fewer", *report.LINKS]
    print(f"\n{report.table([*header, 'time'], rows)}\n\n{_EXPLANATION}\n")
    for name, picture in pictures.items():
        print(f"{name}: {picture}")
    for name in (*RUNS, SUBSPACE):
        print(f"Checkpoints: {output / name}")
    run_reports.write_beside(output, *RUNS, SUBSPACE)
    print(f"\n{_NEXT.format(folder=output)}")


@contextlib.contextmanager
def _quiet():
    """Drops lines whose result another line gives."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _say(text):
    from terngrad_tf.training.log import log

    if text.strip():
        log(text.strip())


PROGRAM = program.Program(_DESCRIPTION, _define, _main)
define_flags, main, run = PROGRAM.define_flags, PROGRAM.main, PROGRAM.run

if __name__ == "__main__":
    run()

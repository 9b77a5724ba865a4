"""A picture of training in a subspace and of the phase before."""

import pathlib

import keras
import numpy as np
import tensorflow as tf

from slim_data.common.extras import import_extra
from terngrad_tf.common import tags
from terngrad_tf.common.files import atomic_write
from terngrad_tf.phase_2 import source
from terngrad_tf.phase_2.phases import PHASE_1, PHASE_1_AVERAGE, PHASE_2, Accuracies, Phases
from terngrad_tf.phase_2.trainer import SubspaceResult
from terngrad_tf.subspace.weights import snapshot_files
from terngrad_tf.training.errors import UserError, as_user_error
from terngrad_tf.training.input import inputs
from terngrad_tf.training.log import log
from terngrad_tf.training.logs import report, triggers
from terngrad_tf.training.network import networks
from terngrad_tf.training.storage import checkpoints, run_folder

_GRID = 13
# Enough for small images, fewer for large ones: the network computes them 169 times.
_NUM_EXAMPLES = 256
_NUM_VALUES = 2**21
_MARGIN = 0.15
_LOG_SECONDS = 10.0


def draw(result: SubspaceResult, accuracies: Accuracies) -> pathlib.Path:
    """Draws explained variance, trajectory, losses and accuracies of both phases.

    The loss surface is the mean cross-entropy of training images (256, or fewer if these hold more
    than 2 million numbers) in the plane of the first two components through the last weights.

    Returns the path of the PNG, subspace.png in the run's folder; an existing file is replaced.
    """
    start = result.start
    scalars = _own_steps(result.config.train_dir, start.steps_before)
    figure = import_extra("matplotlib.figure").Figure(figsize=(12, 8), layout="constrained")
    axes = figure.subplots(2, 2)
    _draw_variance(axes[0, 0], result.subspace)
    _draw_surface(axes[0, 1], result, scalars)
    phases = Phases(result)
    before = _own_steps(start.folder, start.steps_before - start.step)
    _draw_curves(
        axes[1, 0],
        ("training cross-entropy", "log"),
        {
            PHASE_1: phases.before(before.get(tags.CROSS_ENTROPY, {})),
            # Logged after a step, but computed with the weights before.
            PHASE_2: phases.after(
                {step - 1: v for step, v in scalars.get(tags.CROSS_ENTROPY, {}).items()}
            ),
        },
    )
    curves = {
        name: {epochs: 100 * figures.precision_at_1 for epochs, figures in curve.items()}
        for name, curve in accuracies.items()
    }
    # Drawn as a level: a gain over the last weights alone must not look like a gain.
    level = curves.pop(PHASE_1_AVERAGE, None)
    if level:
        axes[1, 1].axhline(*level.values(), color="gray", linestyle="--", label=PHASE_1_AVERAGE)
    _draw_curves(axes[1, 1], ("accuracy / %", "linear"), curves)
    path = pathlib.Path(result.config.train_dir, run_folder.PICTURE_FILE)
    with atomic_write(path) as beside:
        figure.savefig(beside, format="png", dpi=120)
    return path


def _own_steps(folder, steps_before):
    """Returns the scalars of `report.read_scalars`, over the run's own steps."""
    return {
        tag: {step - steps_before: value for step, value in curve.items()}
        for tag, curve in report.read_scalars(folder).items()
    }


def _draw_variance(axes, subspace):
    axes.set(title="Variance of the snapshots", xlabel="component", ylabel="part explained")
    ratio = subspace.explained_variance_ratio
    if ratio is None:
        axes.text(0.5, 0.5, "not known from a .npy file", ha="center", transform=axes.transAxes)
        return
    numbers = np.arange(1, len(ratio) + 1)
    axes.bar(numbers, ratio, label="each")
    axes.plot(numbers, np.cumsum(ratio), color="C1", marker=".", label="together")
    axes.set_ylim(0, 1.05)
    axes.grid(alpha=0.3)
    axes.legend()


def _draw_curves(axes, labels, curves):
    label, scale = labels
    for name, curve in curves.items():
        if curve:
            axes.plot(list(curve), list(curve.values()), marker=".", label=name)
    axes.set(xlabel="epochs", ylabel=label, yscale=scale)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def _draw_surface(axes, result, scalars):
    axes.set(title="Loss and the way", xlabel="component 1", ylabel="component 2")
    if result.subspace.num_components < 2:
        axes.text(0.5, 0.5, "one component alone", ha="center", transform=axes.transAxes)
        return
    places = [list(scalars.get(tags.component(number), {}).values()) for number in (1, 2)]
    if not places[0]:
        axes.text(0.5, 0.5, "no logs of phase 2", ha="center", transform=axes.transAxes)
        return
    rows = np.asarray(result.subspace.components[:2], np.float32)
    ways = {
        "snapshots of phase 1": _snapshots_in(result, rows),
        "phase 2": np.stack(places, axis=1),
    }
    points = np.concatenate(list(ways.values()))
    low, high = points.min(0), points.max(0)
    margin = np.maximum(_MARGIN * (high - low), 1e-3)
    grid = [np.linspace(a, b, _GRID) for a, b in zip(low - margin, high + margin, strict=True)]
    losses = _surface(result, rows, *grid)
    levels = axes.contourf(*grid, np.log10(np.maximum(losses, 1e-8)), 20, cmap="viridis")
    axes.figure.colorbar(levels, ax=axes, label="log10 of the cross-entropy")
    for (name, way), color in zip(ways.items(), ("white", "red"), strict=True):
        if len(way):
            axes.plot(*way.T, marker=".", color=color, label=name)
    axes.plot(*ways["phase 2"][-1], marker="*", markersize=12, color="red")
    axes.legend()


def _snapshots_in(result, rows):
    """Returns positions [snapshots, 2] of the first phase's snapshots, or none."""
    folder = source.find_snapshots(result.config.basis.weight_load_dir, result.start)
    places = []
    for path in snapshot_files.find_snapshots(folder):
        with as_user_error():
            weights = snapshot_files.open_snapshot(path).read()
        flat = np.concatenate([np.ravel(w) for w in weights])
        if flat.size != rows.shape[1]:
            raise UserError(
                f"{path} must hold the {rows.shape[1]} weights of the subspace. "
                f"Received: {flat.size} weights"
            )
        places.append(rows @ flat)
    return np.array(places).reshape(-1, 2)


def _surface(result, rows, first, second):
    """Returns losses [positions in second, positions in first] in the plane of the last weights."""
    # Batch norm uses the batch's statistics, and dropout is off.
    config = result.config.changed(num_nodes=1, dropout_keep_prob=1.0)
    network = networks.build_network(config, inputs.find_shard(config))
    num_examples = min(_NUM_EXAMPLES, max(_NUM_VALUES // int(np.prod(network.input_shape[1:])), 1))
    config = config.changed(batch_size=num_examples)
    checkpoints.restore(tf.train.Checkpoint(model=network), result.checkpoint)
    images, labels = next(iter(inputs.batches(config, 0)))
    labels = tf.nest.flatten(labels)[0]
    variables = network.trainable_variables
    shapes = [tuple(variable.shape) for variable in variables]
    sizes = [int(np.prod(shape)) for shape in shapes]
    last = np.concatenate([variable.numpy().ravel() for variable in variables])
    place = rows @ last

    @tf.function
    def loss_at(vector):
        parts = tf.split(vector, sizes)
        values = [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            logits = tf.nest.flatten(network(images, training=True))[0]
        return tf.reduce_mean(
            keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        )

    log(f"drawing the losses of {num_examples} images at {len(first) * len(second)} places")
    losses, is_due = [], triggers.every_seconds(_LOG_SECONDS)
    for b in second:
        for a in first:
            coordinates = np.array([a, b], np.float32)
            losses.append(float(loss_at(last + (coordinates - place) @ rows)))
            if is_due(len(losses)):
                log(f"losses at {len(losses)} places found")
    return np.reshape(losses, [len(second), len(first)])

"""The sources of training in a subspace: initial weights and subspace."""

import dataclasses
import os
import pathlib
import re
import time
from typing import Any, TypeVar

import keras
import tensorflow as tf

from terngrad_tf.phase_2.config import SubspaceConfig
from terngrad_tf.subspace import Subspace, average_snapshots, restore_snapshot
from terngrad_tf.subspace.weights import snapshot_files
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.run_config import RunConfig
from terngrad_tf.training.errors import UserError, as_user_error, output_path
from terngrad_tf.training.evaluation import evaluator
from terngrad_tf.training.log import log
from terngrad_tf.training.storage import checkpoints, run_folder

_Config = TypeVar("_Config", bound=RunConfig)

DEFAULT_COMPONENTS = 32
SUBSPACE_FILE = "subspace.safetensors"

# MindSpore's names of checkpoints: prefix-epoch_steps.ckpt, with the steps within an epoch.
_MINDSPORE_NAME = re.compile(r".+-(\d{1,9})_(\d{1,9})\.ckpt")


@dataclasses.dataclass(frozen=True)
class Start:
    """Weights of a run; `path` is a checkpoint's, without ".index", or a snapshot's."""

    path: str
    folder: pathlib.Path
    run: dict[str, Any]

    @property
    def is_snapshot(self) -> bool:
        """True for a weight snapshot, which has no batch-norm statistics."""
        return snapshot_files.step_of(self.path) is not None

    @property
    def step(self) -> int:
        """Number of steps of the weights' run."""
        step = snapshot_files.step_of(self.path)
        return checkpoints.step_of(self.path) if step is None else step

    @property
    def steps_before(self) -> int:
        """Number of steps of the weights' run and the runs before."""
        return (self.run.get("steps_before") or 0) + self.step

    @property
    def keeps_average(self) -> bool:
        """True if a moving average of the weights exists."""
        return not self.is_snapshot and evaluator.keeps_average(self.run)

    def restore(self, model: keras.Model, average: bool = False) -> None:
        """Assigns the weights, or their moving average, to a network."""
        if self.is_snapshot:
            restore_snapshot(model, self.path)
        elif average:
            averaged, _ = evaluator.restore_network(self.path, self.run, True)
            for variable, value in zip(model.weights, averaged.weights, strict=True):
                variable.assign(value)
        else:
            checkpoint = tf.train.Checkpoint(model=model)
            checkpoints.restore(checkpoint, self.path)
        log(f"starting from the {'moving average' if average else 'last weights'} in {self.path}")


def find_start(path: str) -> Start:
    """Finds weights and their run.

    Args:
        path: folder of a run, for its newest checkpoint; a checkpoint with or without ".index"; or
            a snapshot in a run's folder of snapshots. "resnet-70_625.ckpt", MindSpore's form of a
            name, is the run's checkpoint of epoch 70.
    """
    given = path
    checks.folder("pretrained_weight_path", path)
    path = os.path.abspath(os.path.expanduser(path))
    found, folder = _locate(path)
    run = run_folder.read_run(folder)
    name = _MINDSPORE_NAME.fullmatch(os.path.basename(path))
    if found is None and run is not None and name:
        found = _checkpoint_of_epoch(given, folder, run, *map(int, name.groups()))
    if found is None or run is None:
        what = "a run's folder, a checkpoint or a weight snapshot"
        if found is not None:
            what = f"in the folder of its run, with its {run_folder.RUN_FILE}"
        raise UserError(
            f"`pretrained_weight_path` must be {what}. Received: pretrained_weight_path={given!r}"
        )
    return Start(found, folder, run)


def _locate(path):
    """Returns the path of a checkpoint, without ".index", or snapshot; and its run's folder."""
    above = pathlib.Path(path).parent
    if os.path.isdir(path):
        return checkpoints.latest_checkpoint(path), pathlib.Path(path)
    if snapshot_files.step_of(path) is not None and os.path.isfile(path):
        return path, above.parent
    checkpoint = path.removesuffix(".index")
    return (checkpoint if os.path.isfile(f"{checkpoint}.index") else None), above


def _checkpoint_of_epoch(given, folder, run, epoch, steps):
    """Returns the path, without ".index", of a run's checkpoint at the end of an epoch."""
    steps_per_epoch = run.get("steps_per_epoch") or max(1, steps)
    saved = [str(path.with_suffix("")) for path in folder.glob(f"{checkpoints.NAME}-*.index")]
    saved.sort(key=checkpoints.step_of)
    epochs = {path: checkpoints.step_of(path) / steps_per_epoch for path in saved}
    # Checkpoints follow whole steps; an epoch may end within a step.
    found = min(epochs, key=lambda path: abs(epochs[path] - epoch), default=None)
    if found is None or round(epochs[found]) != epoch:
        there = ", ".join(
            f"{os.path.basename(path)} (epoch {number:.4g})" for path, number in epochs.items()
        )
        raise UserError(
            f"`pretrained_weight_path` must name an epoch with a checkpoint; {folder} holds "
            f"{there or 'none'}. Received: pretrained_weight_path={given!r}"
        )
    return found


def find_snapshots(weight_load_dir: str, start: Start) -> str:
    """Returns the path of the folder of weight snapshots, which may not exist.

    A relative path that does not exist in the current folder is looked up beside the initial run's:
    "./checkpoint_stage_1/checkpoint_pca" of MindSpore's tutorial is in device0_stage_1.
    """
    if not weight_load_dir:
        return str(start.folder / run_folder.SNAPSHOT_FOLDER)
    beside = start.folder.parent / weight_load_dir
    is_beside = not os.path.exists(weight_load_dir) and beside.is_dir()
    return str(beside) if is_beside else weight_load_dir


def subspace_path(config: SubspaceConfig) -> str:
    """Returns the path of the subspace's file."""
    given = os.path.expanduser(config.basis.pca_mat_path)
    return given or os.path.join(config.train_dir, SUBSPACE_FILE)


def find_subspace(config: SubspaceConfig, start: Start) -> Subspace:
    """Reads the subspace or, if its file is missing, computes it from the snapshots.

    A computed subspace has no file yet.
    """
    path = subspace_path(config)
    if not os.path.exists(path):
        return _compute(config, find_snapshots(config.basis.weight_load_dir, start))
    try:
        with as_user_error():
            subspace = Subspace.load(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    wanted = config.basis.n_components
    if wanted is not None and subspace.num_components != wanted:
        raise UserError(
            f"`n_components` must be that of {path}, {subspace.num_components}. "
            f"Received: n_components={wanted}"
        )
    return subspace


def assign_mean(
    weight_load_dir: str, start: Start, subspace: Subspace, network: keras.Model
) -> None:
    """Assigns the mean of the snapshots; a subspace from a `.npy` file leaves it to the snapshots.

    Args:
        weight_load_dir: see `find_snapshots`.
    """
    if subspace.mean is not None:
        subspace.assign_mean(network)
        return
    folder = find_snapshots(weight_load_dir, start)
    if not os.path.isdir(folder):
        raise UserError(
            "`weight_load_dir` must be a folder with weight snapshots for start_at='mean', since"
            f" {subspace.path} holds no mean. Received: weight_load_dir={folder!r}"
        )
    average_snapshots(network, folder)


def with_network(config: _Config, start: Start) -> _Config:
    """Returns the configuration with the initial run's network and, by default, its data."""
    before = start.run["identity"]
    names = ("net", "weight_decay", "dropout_keep_prob", "label_smoothing")
    return config.changed(
        dataset_name=config.data.dataset_name or before["dataset_name"],
        image_size=start.run["model"]["image_size"],
        num_classes=before.get("num_classes"),
        **{name: before[name] for name in names},
    )


def start_at(config: SubspaceConfig, start: Start) -> str:
    """Returns the kind of weights to start at, one of `config.STARTS`."""
    chosen = config.basis.start_at or ("average" if start.keeps_average else "last")
    if chosen == "average" and not start.keeps_average:
        raise UserError(
            f"`start_at` must be last or mean where no moving average was kept, as in {start.path}."
            " Received: start_at='average'"
        )
    return chosen


def _compute(config, folder):
    since = time.perf_counter()
    if not os.path.isdir(folder):
        rule = "`weight_load_dir` must be a folder with weight snapshots"
        received = f"weight_load_dir={folder!r}"
        if config.basis.pca_mat_path:
            rule = f"`pca_mat_path` must be a file, or {rule}"
            received = f"pca_mat_path={config.basis.pca_mat_path!r}, {received}"
        raise UserError(f"{rule}. Received: {received}")
    if config.basis.pca_mat_path:
        output_path("pca_mat_path", subspace_path(config))
    num_components = config.basis.n_components or _default_num_components(folder)
    try:
        subspace = Subspace.fit(folder, num_components)
    except ValueError as error:
        raise UserError(str(error).replace("num_components", "n_components")) from error
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error
    explained = subspace.explained_variance_ratio.sum()
    log(
        f"{subspace.num_components} principal components of the snapshots in {folder} explain "
        f"{100 * explained:.2f} % of their variance ({time.perf_counter() - since:.1f} sec)"
    )
    return subspace


def _default_num_components(folder):
    num_snapshots = len(snapshot_files.find_snapshots(folder))
    # PCA itself refuses a single snapshot.
    found = min(DEFAULT_COMPONENTS, max(1, num_snapshots - 1))
    if found < DEFAULT_COMPONENTS:
        log(
            f"{num_snapshots} snapshots in {folder}: {found} components instead of "
            f"{DEFAULT_COMPONENTS}"
        )
    return found

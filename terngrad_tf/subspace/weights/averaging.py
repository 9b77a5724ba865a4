"""The average of weight snapshots, which often generalizes better than the last weights."""

from collections.abc import Iterable

import keras
import numpy as np

from terngrad_tf.common.files import PathLike
from terngrad_tf.subspace.weights import snapshot_files
from terngrad_tf.subspace.weights import variables as weights


def average_snapshots(model: keras.Model, snapshots: PathLike | Iterable[PathLike]) -> int:
    """Sets a model's trainable weights to the mean of snapshots, computed in float64.

    Batch-norm statistics still belong to the old weights: call `update_batch_norm` afterwards.
    `Subspace.assign_mean` gives the same from a subspace of the snapshots.

    Args:
        model: built `keras.Model` with the snapshots' weights.
        snapshots: folder of `SnapshotCheckpoint`, or list of its files.

    Returns:
        The number of snapshots.

    Raises:
        ValueError: no snapshot exists, the mean is not finite, or names or shapes differ.
        FileNotFoundError: the folder or a file does not exist.

    Example:
        >>> average_snapshots(model, snapshots)  # the folder of a SnapshotCheckpoint
        6

    Source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization",
    UAI 2018.
    """
    opened = snapshot_files.open_snapshots(snapshots)
    if not opened:
        raise ValueError(f"`snapshots` must hold a snapshot. Received: none in {snapshots}")
    layout = weights.layout_of(model.trainable_variables)
    weights.check_same_layout(layout, opened[0].layout, "the model", str(opened[0].path))
    sums = [np.zeros(shape) for _, shape in layout]
    for snapshot in opened:
        for total, value in zip(sums, snapshot.read(), strict=True):
            total += value
    if not all(np.isfinite(total).all() for total in sums):
        raise ValueError("the snapshots must be finite. Received: NaN or Inf among the weights")
    for variable, total in zip(model.trainable_variables, sums, strict=True):
        variable.assign(total / len(opened))
    return len(opened)

"""Dimension-reduction training: weight snapshots and training along their principal components."""

from terngrad_tf.subspace.components.subspace import Subspace
from terngrad_tf.subspace.optimizers.subspace_bfgs import SubspaceBFGS
from terngrad_tf.subspace.optimizers.subspace_sgd import SubspaceSGD
from terngrad_tf.subspace.optimizers.trainer import SubspaceModel, SubspaceTrainingMixin
from terngrad_tf.subspace.weights.averaging import average_snapshots
from terngrad_tf.subspace.weights.batch_norm import update_batch_norm
from terngrad_tf.subspace.weights.snapshot_files import restore_snapshot, save_snapshot
from terngrad_tf.subspace.weights.snapshots import SnapshotCheckpoint

__all__ = [
    "SnapshotCheckpoint",
    "Subspace",
    "SubspaceBFGS",
    "SubspaceModel",
    "SubspaceSGD",
    "SubspaceTrainingMixin",
    "average_snapshots",
    "restore_snapshot",
    "save_snapshot",
    "update_batch_norm",
]

"""Dimension-reduction training: weight snapshots and training along their principal components."""

from terngrad_tf.subspace.averaging import average_snapshots
from terngrad_tf.subspace.batch_norm import update_batch_norm
from terngrad_tf.subspace.snapshot_files import restore_snapshot, save_snapshot
from terngrad_tf.subspace.snapshots import SnapshotCheckpoint
from terngrad_tf.subspace.subspace import Subspace
from terngrad_tf.subspace.subspace_bfgs import SubspaceBFGS
from terngrad_tf.subspace.subspace_sgd import SubspaceSGD
from terngrad_tf.subspace.trainer import SubspaceModel, SubspaceTrainingMixin

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

"""Dimension-reduction training: weight snapshots, their principal components, training in them."""

from terngrad_tf.subspace.snapshot_files import restore_snapshot, save_snapshot
from terngrad_tf.subspace.snapshots import SnapshotCheckpoint
from terngrad_tf.subspace.subspace import Subspace

__all__ = ["SnapshotCheckpoint", "Subspace", "restore_snapshot", "save_snapshot"]

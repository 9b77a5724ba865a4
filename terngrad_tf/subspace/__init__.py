"""Dimension-reduction training: weight snapshots, their principal components, training in them."""

from terngrad_tf.subspace.snapshot_files import restore_snapshot, save_snapshot
from terngrad_tf.subspace.snapshots import SnapshotCheckpoint

__all__ = ["SnapshotCheckpoint", "restore_snapshot", "save_snapshot"]

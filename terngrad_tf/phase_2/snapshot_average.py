"""The mean of a run's weight snapshots as a separate run: `average_run`."""

import hashlib
import math
import pathlib

import tensorflow as tf

from slim_data.files import checksums
from terngrad_tf.phase_2 import source
from terngrad_tf.phase_2.snapshot_average_config import AverageConfig
from terngrad_tf.phase_2.source import Start
from terngrad_tf.subspace import average_snapshots, update_batch_norm
from terngrad_tf.subspace.weights import snapshot_files
from terngrad_tf.training.errors import UserError, as_user_error
from terngrad_tf.training.input import inputs
from terngrad_tf.training.log import log
from terngrad_tf.training.network import networks
from terngrad_tf.training.runs.run import open_folder
from terngrad_tf.training.storage import checkpoints


def average_run(config: AverageConfig) -> tuple[str, Start, int]:
    """Averages snapshots, recomputes batch-norm statistics, and saves the network as a run.

    A folder with the same average is left unchanged.

    Args:
        config: `AverageConfig`.

    Returns:
        Triple of the checkpoint's path, the `source.Start` of the original run and the number of
        snapshots.

    Raises:
        UserError: an option, the snapshots or the folder is unsuitable.
        slim_data.DataError: the data is missing or damaged.
    """
    start = source.find_start(config.pretrained_weight_path)
    folder = source.find_snapshots(config.weight_load_dir, start)
    snapshots = _newest(folder, config.num_snapshots)
    config = source.with_network(config, start)
    shard = inputs.find_shard(config)
    with as_user_error():
        network = networks.build_network(config, shard)

    def begin():
        with as_user_error():
            average_snapshots(network, snapshots)
        steps = math.ceil(shard.num_examples / config.data.batch_size)
        update_batch_norm(network, inputs.batches(config, 0, shard), steps)
        log(f"averaged {len(snapshots)} snapshots in {folder}")
        return 0

    averaged = {
        "optimizer": "average_snapshots",
        "snapshots": [pathlib.Path(path).name for path in snapshots],
        # Snapshots of other runs have the same names.
        "snapshots_fingerprint": _fingerprint(snapshots),
    }
    with open_folder(
        config,
        shard,
        start=begin,
        network=networks.network_metadata(config, shard),
        # As for training, so that evaluation finds all values.
        identity=config.identity() | averaged,
        checkpoint=tf.train.Checkpoint(model=network),
    ) as (step, manager):
        if not manager.latest_checkpoint:
            checkpoints.write(manager, step)
        return manager.latest_checkpoint, start, len(snapshots)


def _fingerprint(snapshots):
    """Returns a digest of the snapshots' content."""
    digest = hashlib.sha256()
    for path in snapshots:
        digest.update(checksums.sha256(path).encode())
    return digest.hexdigest()[:16]


def _newest(folder, number):
    """Returns the paths of the `number` newest snapshots, by default of all."""
    found = snapshot_files.find_snapshots(folder)
    if not found:
        raise UserError(
            "`weight_load_dir` must be a folder with weight snapshots. "
            f"Received: weight_load_dir={folder!r}"
        )
    if number is not None and number > len(found):
        raise UserError(
            f"`num_snapshots` must be at most the {len(found)} snapshots in {folder}. "
            f"Received: num_snapshots={number}"
        )
    return found if number is None else found[-number:]

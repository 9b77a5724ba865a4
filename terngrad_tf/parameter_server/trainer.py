"""Asynchronous training with parameter servers: `train_async` and `serve_parameters`."""

import contextlib
import dataclasses
import secrets

import tensorflow as tf

from terngrad_tf.distribute import PeerError
from terngrad_tf.distribute.consistency.handshake import code_metadata
from terngrad_tf.parameter_server import process
from terngrad_tf.parameter_server.cluster import ParameterServerCluster
from terngrad_tf.parameter_server.codec import PUSH_WIRES, check_wire
from terngrad_tf.parameter_server.loop import AsyncRun
from terngrad_tf.parameter_server.variables import ServedModel
from terngrad_tf.training.configs.run_config import TrainConfig
from terngrad_tf.training.errors import UserError, as_user_error
from terngrad_tf.training.input import data, inputs
from terngrad_tf.training.logs.board import Board
from terngrad_tf.training.network import networks, pretrained
from terngrad_tf.training.optimization.statistics_average import StatisticsAverage
from terngrad_tf.training.runs import trainer
from terngrad_tf.training.runs.cluster import log_end
from terngrad_tf.training.runs.run import open_folder
from terngrad_tf.training.storage import checkpoints


def serve_parameters(
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver, *, start_timeout: float = 600
) -> None:
    """Runs a parameter server until the run's chief, worker 0, ends.

    Args:
        cluster_resolver: see `train_async`; its task is a "ps".
        start_timeout: seconds to wait for the chief. Default 600.

    Raises:
        UserError: the cluster has no worker or no parameter server.
        PeerError: the chief did not start, was lost or stopped with an error.
    """
    with as_user_error():
        process.serve(cluster_resolver, {"code": code_metadata()}, start_timeout=start_timeout)


def train_async(
    config: TrainConfig,
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
    *,
    start_timeout: float = 600,
) -> trainer.TrainResult | None:
    """Trains asynchronously: each worker's gradients are applied as soon as they arrive.

    Variables live on parameter servers. A worker pulls them as floats, computes the gradients of
    its own batch and pushes them as ternary codes with its own scales; the servers decode them and
    apply an optimizer step. Each push is a step: step numbers, learning rates and `max_steps` count
    the pushes of all workers, and `batch_size` is one worker's.

    Worker 0 is the chief: it also schedules the steps, keeps `train_dir` and prints all log lines.
    Every worker reads all files of its own `data_dir`, in an order that changes at each start. Runs
    cannot be repeated bit for bit; a stopped run resumes from its newest checkpoint.

    Training continues without a lost worker, which may be started again. If the chief or a server
    is lost, all processes end.

    Args:
        config: `TrainConfig`, equal on all workers except for folders and devices.
        cluster_resolver: a `tf.distribute.cluster_resolver.ClusterResolver` with the jobs "worker"
            and "ps"; its task is a "worker".
        start_timeout: seconds to wait for the other processes. Default 600.

    Returns:
        A `trainer.TrainResult` with a `PushTraffic` on the chief; None on other workers.

    Raises:
        UserError: an option, the data or the folder is unsuitable.
        slim_data.DataError: the data is missing or damaged.
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
        PreemptedError: SIGTERM asked the chief to stop; the run is saved.
        PeerError: another process failed, is gone or was started differently.
    """
    _check(config)
    with as_user_error():
        source, resumes = _find_source(config, cluster_resolver.task_id == 0)
        config = trainer.resolved(config, source)
        tasks = process.cluster_tasks(cluster_resolver)
    own = inputs.find_shard(config)
    metadata = {
        "code": code_metadata(),
        "run": config.values("shared"),
        "own": {
            "fingerprint": (
                str(tasks.index) if config.data.benchmark_mode else data.fingerprint(config.data)
            ),
            "num_examples": own.num_examples,
        },
    }
    order = dataclasses.replace(own, seed_offset=secrets.randbits(32))
    batches = inputs.batches(config, 0, order)
    if cluster_resolver.task_id != 0:
        process.serve(cluster_resolver, metadata, batches, start_timeout=start_timeout)
        return None
    cluster = ParameterServerCluster(
        cluster_resolver, metadata, batches, start_timeout=start_timeout
    )
    try:
        with config.data.locate_corrupt_records(), cluster.errors():
            result = _lead(config, cluster, own, None if resumes else source)
    except BaseException as error:
        cluster.end(" ".join(str(error).split()) or type(error).__name__)
        raise
    cluster.end()
    return result


def _find_source(config, is_chief):
    """As `pretrained.find_start`; other workers need the network alone, to make its batches."""
    if config.model.net is not None and not is_chief:
        return None, False
    return pretrained.find_start(config.pretrained_model_checkpoint_path, config.train_dir)


def _check(config):
    """Refuses options that asynchronous training does not support."""
    values = config.values()
    for name, wanted, why in (
        ("num_nodes", 1, "each process is one worker"),
        ("communication", "auto", "pushes go over TensorFlow's own connections"),
        ("mixed_precision", False, "the servers scale no losses"),
        ("loss_scale", None, "the servers scale no losses"),
        ("epochs", None, "steps are counted"),
        ("save_epochs", None, "steps are counted"),
        ("sync_every", 0, "workers push gradients in every step"),
        ("sync_seconds", 0, "workers push gradients in every step"),
        ("snapshot_per_epoch", None, "weights between two pushes belong to no step"),
        ("snapshot_every_steps", None, "weights between two pushes belong to no step"),
    ):
        if (value := values[name]) != wanted:
            raise UserError(
                f"`{name}` must be {wanted!r} in asynchronous training: {why}. "
                f"Received: {name}={value!r}"
            )
    if values["telemetry_freq"]:
        why = "in asynchronous training, whose pushes are not measured"
        config.checkpoints.refuse_given(("telemetry_freq",), why)
    if (wire := values["wire"]) not in PUSH_WIRES:
        raise UserError(
            f"`wire` must be one of {PUSH_WIRES} in asynchronous training: codes go to parameter "
            f"servers. Received: wire={wire!r}"
        )
    if values["bits_per_element"] is not None and wire != "sparse":
        raise UserError(
            "`wire` must be 'sparse' in asynchronous training with "
            f"bits_per_element={values['bits_per_element']}: words have no use for it. "
            f"Received: wire={wire!r}"
        )
    # Checked before waiting for other processes.
    with as_user_error():
        check_wire(wire, config.gradients.quantization(config.seed))


def _lead(config, cluster, own, source):
    """Runs the chief's part of `train_async`."""
    cluster.compare()
    shard = own
    if not config.data.benchmark_mode and cluster.num_workers > 1:
        found = [one["own"] for one in cluster.metadata[: cluster.num_workers]]
        fingerprints = [one["fingerprint"] for one in found]
        shard = data.among_processes(own, fingerprints, [one["num_examples"] for one in found], 0)
    pretrained.check_source(source, config, shard)
    with as_user_error():
        quantization = config.gradients.quantization(config.seed)
        model, learning_rate = trainer.build_model(config, shard)
        average = StatisticsAverage(model)
        served = ServedModel(
            model,
            model.optimizer,
            quantization,
            cluster.server_devices,
            cluster.num_workers,
            config.gradients.wire,
            average.variables,
        )
    checkpoint = tf.train.Checkpoint(
        model=model,
        random=networks.random_states(model),
        optimizer=model.optimizer,
        **average.saved(),
    )
    identity = config.identity() | {"num_hosts": cluster.num_workers, "asynchronous": True}
    with open_folder(
        config,
        shard,
        start=lambda: pretrained.restore_source(source, config, model, checkpoint, average),
        network=networks.network_metadata(config, shard),
        identity=identity,
        checkpoint=checkpoint,
    ) as (first_step, manager):
        traffic = served.traffic
        if first_step < config.max_steps:
            served.upload()
            with _closing(Board(manager.directory, first_step=first_step)) as board:
                run = AsyncRun(config, cluster, shard, model, served, manager, board)
                traffic = run.train(first_step, learning_rate)
        newest = manager.latest_checkpoint
        log_end(newest)
        return trainer.TrainResult(checkpoints.step_of(newest), newest, traffic)


@contextlib.contextmanager
def _closing(board):
    """Closes a `Board`, except after the loss of a process, for which TensorFlow might wait."""
    try:
        yield board
    except PeerError:
        raise
    except BaseException:
        board.close()
        raise
    board.close()

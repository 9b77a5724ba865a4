"""Flags of the training programs for several processes, and what they say of the cluster."""

import typing
from typing import Any

from absl.flags import FlagValues

from terngrad_tf.bin import cluster_flags, flags, tf1_flags, train_flags
from terngrad_tf.training import checks
from terngrad_tf.training.config import configuration, harmless, option
from terngrad_tf.training.errors import UserError, as_user_error
from terngrad_tf.training.run_config import TrainConfig

if typing.TYPE_CHECKING:
    import tensorflow as tf

    from terngrad_tf.distribute import Membership


# TernGrad's programs for a cluster save by the clock, and their batch is one process's.
_DEFAULTS = {
    "train_dir": "/tmp/dataset_distributed_train",
    "save_interval_secs": 600.0,
    "save_summaries_secs": 180.0,
}
_TEXTS = {
    "batch_size": (
        "Images per step of each process; divisible by --num_nodes. All processes together take so "
        "many times the number of --worker_hosts."
    ),
    "save_interval_secs": (
        "Seconds between checkpoints, which worker 0 writes. The last step is saved in any case."
    ),
    "save_summaries_secs": "Seconds between what worker 0 writes for TensorBoard.",
}


@configuration
@harmless
class DistributedFlags(cluster_flags.ClusterFlags):
    """A process's place in a cluster that may have parameter servers.

    Runs compare whether they are asynchronous, or share their batches where workers come and go.
    """

    ps_hosts: str = option(
        "",
        "host:port,... of parameter servers. Synchronous training needs none: weights live on "
        "the workers.",
    )
    async_training: bool = option(
        False,
        "Train asynchronously, for all processes alike: the weights live on --ps_hosts, and "
        "each worker's gradients are applied as soon as they arrive. A step is then one "
        "worker's batch; --max_steps counts those of all workers.",
    )
    job_name: str = option(cluster_flags.WORKER, "What this process is: worker or ps.")
    num_replicas_to_aggregate: int = option(
        -1,
        "Workers whose gradients make a step. Synchronous steps take all: the number of worker "
        "processes or -1, which means that. Only -1 with --async_training.",
        checks.integers(1, 2**31 - 1, also=-1),
    )
    min_workers: int = option(
        0,
        "Fewest workers to train with where workers come and go: the others go on without one that "
        "is lost, and take it in again when the run is saved. A step stays of --batch_size images "
        "for each of --worker_hosts. Give --max_restarts, too. 0: all must be there all the time.",
        checks.COUNT_OR_0,
    )
    replicate_checkpoints: int = option(
        0,
        "With --min_workers, how many workers besides the chief keep what is saved, each in its "
        "own --train_dir, so that the run goes on without the chief.",
        checks.COUNT_OR_0,
    )
    join_timeout: float = option(
        10.0,
        "With --min_workers, seconds to wait for further workers where enough are there.",
        checks.SECONDS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_workers and self.async_training:
            raise UserError(
                "`min_workers` must not be given with async_training, which does without workers "
                f"that are lost. Received: min_workers={self.min_workers}"
            )
        if self.replicate_checkpoints and not self.min_workers:
            raise UserError(
                "`replicate_checkpoints` must not be given without min_workers. "
                f"Received: replicate_checkpoints={self.replicate_checkpoints}"
            )

    def arguments(self) -> dict[str, Any]:
        """As those of `ClusterFlags`; parameter servers and their workers take no token."""
        found = super().arguments()
        if self.async_training:
            if self.token_file:
                raise UserError(
                    "`token_file` must not be given with async_training, whose processes ask for "
                    f"none. Received: token_file={self.token_file!r}"
                )
            del found["token"]
        return found

    def resolver(self) -> "tf.distribute.cluster_resolver.ClusterResolver":
        """As that of `ClusterFlags`; raises UserError where nothing describes a cluster."""
        found = super().resolver(self.job_name, self.ps_hosts)
        if found is None:
            raise UserError(
                "`worker_hosts` must be given, or one of "
                f"{', '.join(cluster_flags.SOURCES[1:])} or the environment variable TF_CONFIG. "
                "Received: worker_hosts=''"
            )
        return found


def join(
    values: FlagValues,
    cluster: "tf.distribute.cluster_resolver.ClusterResolver",
    train_dir: str,
) -> "Membership | None":
    """Which workers train, where these come and go; waits for them.

    Args:
        values: parsed `absl.flags.FlagValues`.
        cluster: cluster resolver of all workers.
        train_dir: the run's folder.

    Returns:
        Their `Membership`; None without --min_workers.

    Raises:
        UserError: a value is none that its flag takes, or the folder cannot be used.
        PeerError: too few are there, or they were started differently.
    """
    own = flags.config_of(values, DistributedFlags)
    if not own.min_workers:
        return None
    from terngrad_tf.distribute import join_cluster
    from terngrad_tf.training import checkpoints

    checks.folder("train_dir", train_dir)
    try:
        with as_user_error():
            return join_cluster(
                cluster,
                train_dir,
                lambda: checkpoints.newest_step(train_dir),
                min_workers=own.min_workers,
                num_copies=own.replicate_checkpoints,
                join_timeout=own.join_timeout,
                **own.arguments(),
            )
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UserError(
            "`train_dir` must be a folder that can be written to. "
            f"Received: train_dir={train_dir!r} ({error.strerror})"
        ) from error


def define(values: FlagValues, **defaults: Any) -> None:
    """Defines the flags of a program; `defaults` as for `flags.define`."""
    omit = ("epochs", "save_epochs", "save_iter")
    train_flags.define(values, omit=omit, texts=_TEXTS, **{**_DEFAULTS, **defaults})
    cluster_flags.define(values, DistributedFlags)


def arguments(values: FlagValues) -> dict[str, Any]:
    """How the processes meet, by `ClusterFlags.arguments`, of parsed `absl.flags.FlagValues`."""
    return flags.config_of(values, DistributedFlags).arguments()


def cluster(values: FlagValues) -> "tf.distribute.cluster_resolver.ClusterResolver":
    """The cluster that parsed flags or `TF_CONFIG` describe, see `DistributedFlags.resolver`."""
    return flags.config_of(values, DistributedFlags).resolver()


def log_lines(
    values: FlagValues, cluster: "tf.distribute.cluster_resolver.ClusterResolver"
) -> list[str]:
    """Lines that say which processes there are, what this one is, and how the cluster trains.

    Args:
        values: parsed `absl.flags.FlagValues`.
        cluster: their cluster resolver.
    """
    jobs = cluster.cluster_spec().as_dict()
    # TF_CONFIG may call the first worker the chief.
    workers = [*jobs.get("chief", []), *jobs.get(cluster_flags.WORKER, [])]
    servers = jobs.get("ps", [])
    rank = cluster.task_id
    if cluster.task_type == "ps":
        own = f"parameter server {rank} of {len(servers)}"
    else:
        rank += len(jobs.get("chief", [])) if cluster.task_type == cluster_flags.WORKER else 0
        own = f"worker {rank} of {len(workers)}{', the chief' if rank == 0 else ''}"
    how = "asynchronous" if values.async_training else "synchronous"
    gradients = {1: "ternary", 32: "float"}.get(values.grad_bits, f"{values.grad_bits}-bit")
    return [
        f"PS hosts are: {servers}",
        f"Worker hosts are: {workers}",
        f"This process is {own}; {how} training, {gradients} gradients",
    ]


def async_config(values: FlagValues) -> TrainConfig:
    """What `training.train_async` takes on a worker, a `TrainConfig`.

    Args:
        values: parsed `absl.flags.FlagValues`.

    Raises:
        UserError: a value is none that its flag takes.
    """
    if values.num_replicas_to_aggregate != -1:
        raise UserError(
            "`num_replicas_to_aggregate` must be -1 with async_training: each worker's gradients "
            "make a step. Received: "
            f"num_replicas_to_aggregate={values.num_replicas_to_aggregate}"
        )
    return tf1_flags.train_config(values)


def sync_config(
    values: FlagValues, cluster: "tf.distribute.cluster_resolver.ClusterResolver"
) -> "tuple[TrainConfig, tf.distribute.cluster_resolver.ClusterResolver]":
    """What `training.train` takes on a worker.

    Args:
        values: parsed `absl.flags.FlagValues`.
        cluster: their cluster resolver.

    Returns:
        (`TrainConfig`, a `tf.distribute.cluster_resolver.ClusterResolver` of the workers).

    Raises:
        UserError: a value is none that its flag takes.
    """
    from terngrad_tf import distribute

    workers = distribute.workers_only(cluster)
    num_processes = sum(map(len, workers.cluster_spec().as_dict().values()))
    if values.num_replicas_to_aggregate not in (-1, num_processes):
        raise UserError(
            f"`num_replicas_to_aggregate` must be -1 or the number of workers, {num_processes}: a "
            "synchronous step waits for all. Received: "
            f"num_replicas_to_aggregate={values.num_replicas_to_aggregate}"
        )
    config = tf1_flags.train_config(values)
    return config.changed(batch_size=config.data.batch_size * num_processes), workers

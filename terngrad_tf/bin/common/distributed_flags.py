"""Flags of the training programs for several processes, and their cluster."""

import typing
from typing import Any

from absl.flags import FlagValues

from terngrad_tf.bin.common import cluster_flags, tf1_flags, train_flags
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import configuration, harmless, option
from terngrad_tf.training.configs.run_config import TrainConfig
from terngrad_tf.training.errors import UserError, as_user_error, require, writing_into

if typing.TYPE_CHECKING:
    import tensorflow as tf

    from terngrad_tf.distribute import Membership


# TernGrad's programs for a cluster save by time.
_DEFAULTS = {
    "train_dir": "/tmp/dataset_distributed_train",
    "save_interval_secs": 600.0,
    "save_summaries_secs": 180.0,
}
_TEXTS = {
    "batch_size": (
        "Images per step of each process; divisible by --num_nodes. A step of all processes takes "
        "this number times the number of --worker_hosts."
    ),
    "save_interval_secs": (
        "Seconds between checkpoints, which worker 0 writes. The last step is always saved."
    ),
    "save_summaries_secs": "Seconds between worker 0's summaries for TensorBoard.",
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
        "Train asynchronously; must be the same for all processes. The weights live on --ps_hosts, "
        "and each worker's gradients are applied as soon as they arrive. A step is one worker's "
        "batch; --max_steps counts the steps of all workers.",
    )
    job_name: str = option(cluster_flags.WORKER, "Job of this process: worker or ps.")
    num_replicas_to_aggregate: int = option(
        -1,
        "Workers whose gradients make a step. Synchronous steps take all: the number of worker "
        "processes, or -1 for the same. Only -1 with --async_training.",
        checks.integers(1, 2**31 - 1, also=-1),
    )
    min_workers: int = option(
        0,
        "Minimum number of workers, for workers that come and go: the others continue without a "
        "lost worker, and admit it again when the run is saved. A step keeps --batch_size images "
        "for each of --worker_hosts. Give --max_restarts, too. 0: all workers are required.",
        checks.COUNT_OR_0,
    )
    replicate_checkpoints: int = option(
        0,
        "With --min_workers, number of workers besides the chief that keep copies of checkpoints, "
        "each in its own --train_dir, so that the run can continue without the chief.",
        checks.COUNT_OR_0,
    )
    join_timeout: float = option(
        10.0,
        "With --min_workers, seconds to wait for further workers once enough are present; at most "
        "5 after a restart by --max_restarts.",
        checks.SECONDS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.async_training:
            why = "with async_training, which continues without lost workers"
            self.refuse_given(("min_workers",), why)
        if not self.min_workers:
            self.refuse_given(("replicate_checkpoints",), "without min_workers")

    def arguments(self) -> dict[str, Any]:
        """See `ClusterFlags`; asynchronous training takes no token."""
        found = super().arguments()
        if self.async_training:
            self.refuse_given(("token_file",), "with async_training, which has no tokens")
            del found["token"]
        return found

    def resolver(self) -> "tf.distribute.cluster_resolver.ClusterResolver":
        """See `ClusterFlags`; raises UserError without a cluster."""
        found = super().resolver(self.job_name, self.ps_hosts)
        if found is None:
            raise UserError(
                "`worker_hosts` must be given, or one of "
                f"{', '.join(cluster_flags.SOURCES[1:])} or the environment variable TF_CONFIG. "
                "Received: worker_hosts=''"
            )
        return found

    def join(
        self,
        cluster: "tf.distribute.cluster_resolver.ClusterResolver",
        config: TrainConfig,
        **meeting: Any,
    ) -> "Membership | None":
        """Waits for workers that come and go; returns those that train, None without --min_workers.

        Args:
            **meeting: this object's `arguments()`.

        Raises:
            PeerError: too few workers are present, or their programs differ.
        """
        if not self.min_workers:
            return None
        from terngrad_tf.distribute import join_cluster
        from terngrad_tf.training.storage import checkpoints

        no_folder = FileExistsError, NotADirectoryError, PermissionError
        with writing_into("train_dir", config.train_dir, no_folder), as_user_error():
            return join_cluster(
                cluster,
                config.train_dir,
                lambda: checkpoints.newest_step(config.train_dir),
                min_workers=self.min_workers,
                num_copies=self.replicate_checkpoints,
                join_timeout=self.join_timeout,
                options=config.values("shared"),
                **meeting,
            )


def define(values: FlagValues, **defaults: Any) -> None:
    """Defines the flags of a program; `defaults`: see `flags.define`."""
    omit = ("epochs", "save_epochs", "save_iter")
    train_flags.define(values, omit=omit, texts=_TEXTS, **{**_DEFAULTS, **defaults})
    cluster_flags.define(values, DistributedFlags)


def log_lines(
    values: FlagValues, cluster: "tf.distribute.cluster_resolver.ClusterResolver"
) -> list[str]:
    """Returns lines that describe the processes, this process, and the kind of training."""
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
    how = f"{'asynchronous' if values.async_training else 'synchronous'} training"
    # Flags of gradients mean nothing to a parameter server.
    if cluster.task_type != "ps":
        bits = {1: "ternary", 32: "float"}.get(values.grad_bits, f"{values.grad_bits}-bit")
        how += f", {bits} gradients"
    return [
        f"PS hosts are: {servers}",
        f"Worker hosts are: {workers}",
        f"This process is {own}; {how}",
    ]


def async_config(values: FlagValues) -> TrainConfig:
    """Returns a worker's `TrainConfig` for `parameter_server.train_async`."""
    number = values.num_replicas_to_aggregate
    rule = "must be -1 with async_training: each worker's gradients make a step"
    require(number == -1, "num_replicas_to_aggregate", rule, number)
    return tf1_flags.train_config(values)


def sync_config(
    values: FlagValues, cluster: "tf.distribute.cluster_resolver.ClusterResolver"
) -> "tuple[TrainConfig, tf.distribute.cluster_resolver.ClusterResolver]":
    """Returns a worker's `TrainConfig` for `training.train`, and the resolver of the workers."""
    from terngrad_tf import distribute

    workers = distribute.workers_only(cluster)
    num_processes = sum(map(len, workers.cluster_spec().as_dict().values()))
    number = values.num_replicas_to_aggregate
    rule = f"must be -1 or the number of workers, {num_processes}: a synchronous step waits for all"
    require(number in (-1, num_processes), "num_replicas_to_aggregate", rule, number)
    config = tf1_flags.train_config(values)
    return config.changed(batch_size=config.data.batch_size * num_processes), workers

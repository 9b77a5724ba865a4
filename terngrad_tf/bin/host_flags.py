"""Flags that tell a program the hosts it runs on, and the cluster that they describe."""

from terngrad_tf.bin import flags

# Flags that describe a cluster.
SOURCES = ("worker_hosts", "rank_table_file", "slurm")
WORKER = "worker"
PORT = 2222
# More than the tasks of a node.
_MANY = 1 << 16


def define(values):
    """Defines the flags in `values`, an `absl.flags.FlagValues`."""
    flags.string(
        values,
        "worker_hosts",
        "",
        "host:port,host:port,... of all worker processes, the same on each. Without it, "
        "--rank_table_file, --slurm or the environment variable TF_CONFIG tells the cluster.",
    )
    flags.integer(
        values,
        "task_id",
        0,
        "Place of this process in its job's list, from 0. Worker 0 writes checkpoints and logs.",
    )
    flags.string(values, "rank_table_file", "", "Rank table (JSON) whose devices are the workers.")
    flags.integer(values, "rank_id", 0, "This process's rank in --rank_table_file.")
    flags.boolean(values, "slurm", False, "Take the cluster from Slurm; for programs under srun.")
    flags.integer(
        values,
        "port",
        PORT,
        "Port of the first worker on each host, for --rank_table_file and --slurm.",
    )
    flags.number(
        values,
        "start_timeout",
        600.0,
        "Seconds to wait for the other processes at the start.",
    )
    flags.integer(
        values,
        "max_restarts",
        0,
        "How often, in all, to start the process again that was killed or lost another worker; it "
        "goes on from the last checkpoint. Give it to all workers. 0: never.",
        lower_bound=0,
        upper_bound=10**6,
    )


def arguments(values):
    """Keyword arguments of `training.train` and `train_in_subspace` for the hosts.

    Args:
        values: parsed `absl.flags.FlagValues`; nothing in them or in `TF_CONFIG` means one host.

    Raises:
        UserError: flags do not fit together.
    """
    return {"cluster_resolver": cluster(values), "start_timeout": values.start_timeout}


def cluster(values, job_name=WORKER, ps_hosts=""):
    """The cluster that the flags or `TF_CONFIG` describe.

    Args:
        values: parsed `absl.flags.FlagValues`.
        job_name: this process's job. Default "worker".
        ps_hosts: addresses of parameter servers. Default "" (none).

    Returns:
        A `tf.distribute.cluster_resolver.ClusterResolver` with this process's place; None where
        nothing describes a cluster.

    Raises:
        UserError: flags do not fit together.
    """
    import tensorflow as tf

    from terngrad_tf import distribute, training
    from terngrad_tf.training import checks

    checks.ranges(
        values,
        {
            "task_id": checks.COUNT_OR_0,
            "rank_id": checks.COUNT_OR_0,
            "port": checks.integers(1, 2**16 - 1),
            "start_timeout": checks.Range(0, 10**9, above=True),
        },
    )
    given = [name for name in SOURCES if values[name].value]
    if len(given) > 1:
        raise training.UserError(
            f"`{given[1]}` must not be given together with `{given[0]}`. "
            f"Received: {given[1]}={values[given[1]].value!r}"
        )
    if job_name != WORKER and not values.worker_hosts:
        raise training.UserError(
            f"`job_name` must be {WORKER} where `worker_hosts` is not given. "
            f"Received: job_name={job_name!r}"
        )
    resolvers = tf.distribute.cluster_resolver
    with training.as_user_error():
        try:
            if values.worker_hosts:
                return distribute.cluster_from_hosts(
                    worker_hosts=values.worker_hosts,
                    job_name=job_name,
                    task_id=values.task_id,
                    ps_hosts=ps_hosts,
                )
            if values.rank_table_file:
                return distribute.cluster_from_rank_table(
                    values.rank_table_file, values.rank_id, port=values.port
                )
            if values.slurm:
                # A process uses the GPUs that srun gives it, and there may be none: left alone, the
                # resolver counts them with nvidia-smi.
                return resolvers.SlurmClusterResolver(
                    port_base=values.port,
                    gpus_per_node=_MANY,
                    gpus_per_task=1,
                    auto_set_gpu=False,
                )
        except (OSError, RuntimeError) as error:
            # A file that cannot be read; Slurm's variables, which are missing.
            raise ValueError(str(error)) from error
    with training.as_user_error():
        resolver = distribute.cluster_from_tf_config()
    return resolver if resolver.cluster_spec().as_dict() else None

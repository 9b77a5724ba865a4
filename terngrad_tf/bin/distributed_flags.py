"""Flags of the training programs for several hosts, and the cluster that they describe."""

import dataclasses

from terngrad_tf.bin import flags, train_flags

# Flags that describe a cluster.
_SOURCES = ("worker_hosts", "rank_table_file", "slurm")
_WORKER = "worker"
_PORT = 2222
# More than the tasks of a node.
_MANY = 1 << 16


def define(values, *, dataset_name, net):
    """Defines the flags of a training program for several hosts.

    Args:
        values: `absl.flags.FlagValues` to define them in.
        dataset_name: default of --dataset_name.
        net: default of --net.
    """
    train_flags.define(values, dataset_name=dataset_name, net=net)
    for name in ("batch_size", "save_iter"):
        delattr(values, name)
    values.set_default("train_dir", "/tmp/dataset_distributed_train")
    flags.integer(
        values,
        "batch_size",
        32,
        "Images per step of each process; divisible by --num_nodes. All processes together take so "
        "many times the number of --worker_hosts.",
    )
    flags.number(
        values,
        "save_interval_secs",
        600.0,
        "Seconds between checkpoints, which worker 0 writes. The last step is saved in any case.",
    )
    flags.number(
        values,
        "save_summaries_secs",
        180.0,
        "Seconds between what worker 0 writes for TensorBoard.",
    )
    _define_cluster(values)


def _define_cluster(values):
    flags.string(
        values,
        "worker_hosts",
        "",
        "host:port,host:port,... of all worker processes, the same on each. Without it, "
        "--rank_table_file, --slurm or the environment variable TF_CONFIG tells the cluster.",
    )
    flags.string(
        values,
        "ps_hosts",
        "",
        "host:port,... of parameter servers. Synchronous training needs none: weights live on the "
        "workers.",
    )
    flags.boolean(
        values,
        "async_training",
        False,
        "Train asynchronously, for all processes alike: the weights live on --ps_hosts, and each "
        "worker's gradients are applied as soon as they arrive. A step is then one worker's batch; "
        "--max_steps counts those of all workers.",
    )
    flags.string(values, "job_name", _WORKER, "What this process is: worker or ps.")
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
        _PORT,
        "Port of the first worker on each host, for --rank_table_file and --slurm.",
    )
    flags.integer(
        values,
        "num_replicas_to_aggregate",
        -1,
        "Workers whose gradients make a step. Synchronous steps take all: the number of worker "
        "processes or -1, which means that. Only -1 with --async_training.",
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
    )


def cluster(values):
    """The cluster that the flags or `TF_CONFIG` describe, parameter servers included.

    Args:
        values: parsed `absl.flags.FlagValues`.

    Returns:
        A `tf.distribute.cluster_resolver.ClusterResolver` with this process's place.

    Raises:
        UserError: flags do not fit together, or nothing describes a cluster.
    """
    import tensorflow as tf

    from terngrad_tf import distribute, training

    given = [name for name in _SOURCES if values[name].value]
    if len(given) > 1:
        raise training.UserError(
            f"`{given[1]}` must not be given together with `{given[0]}`. "
            f"Received: {given[1]}={values[given[1]].value!r}"
        )
    if values.job_name != _WORKER and not values.worker_hosts:
        raise training.UserError(
            f"`job_name` must be {_WORKER} where `worker_hosts` is not given. "
            f"Received: job_name={values.job_name!r}"
        )
    resolvers = tf.distribute.cluster_resolver
    with training.as_user_error():
        try:
            if values.worker_hosts:
                return distribute.cluster_from_hosts(
                    worker_hosts=values.worker_hosts,
                    job_name=values.job_name,
                    task_id=values.task_id,
                    ps_hosts=values.ps_hosts,
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
    resolver = resolvers.TFConfigClusterResolver()
    try:
        jobs = resolver.cluster_spec().as_dict()
    except ValueError as error:
        raise training.UserError(
            f"the environment variable TF_CONFIG must be JSON: {error}"
        ) from error
    if not jobs:
        raise training.UserError(
            f"`worker_hosts` must be given, or one of {', '.join(_SOURCES[1:])} or the environment "
            "variable TF_CONFIG. Received: worker_hosts=''"
        )
    return resolver


def async_options(values):
    """What `training.train_async` takes on a worker, as `TrainOptions`.

    Args:
        values: parsed `absl.flags.FlagValues`.

    Raises:
        UserError: a number outside its range.
    """
    from terngrad_tf import training

    if values.num_replicas_to_aggregate != -1:
        raise training.UserError(
            "`num_replicas_to_aggregate` must be -1 with async_training: each worker's gradients "
            "make a step. Received: "
            f"num_replicas_to_aggregate={values.num_replicas_to_aggregate}"
        )
    return flags.options(values, training.TrainOptions)


def options(values, cluster):
    """What `training.train` takes on a worker.

    Args:
        values: parsed `absl.flags.FlagValues`.
        cluster: from `cluster`.

    Returns:
        (`TrainOptions`, a `tf.distribute.cluster_resolver.ClusterResolver` of the workers).

    Raises:
        UserError: a number outside its range.
    """
    from terngrad_tf import distribute, training

    workers = distribute.workers_only(cluster)
    jobs = workers.cluster_spec().as_dict()
    num_processes = sum(map(len, jobs.values()))
    if values.num_replicas_to_aggregate not in (-1, num_processes):
        raise training.UserError(
            f"`num_replicas_to_aggregate` must be -1 or the number of workers, {num_processes}: a "
            "synchronous step waits for all. Received: "
            f"num_replicas_to_aggregate={values.num_replicas_to_aggregate}"
        )
    own = flags.options(values, training.TrainOptions)
    return dataclasses.replace(own, batch_size=own.batch_size * num_processes), workers

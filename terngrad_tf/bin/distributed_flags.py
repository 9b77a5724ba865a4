"""Flags of the training programs for several hosts, and the cluster that they describe."""

import dataclasses

from terngrad_tf.bin import flags, host_flags, train_flags


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
    host_flags.define(values)
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
    flags.string(values, "job_name", host_flags.WORKER, "What this process is: worker or ps.")
    flags.integer(
        values,
        "num_replicas_to_aggregate",
        -1,
        "Workers whose gradients make a step. Synchronous steps take all: the number of worker "
        "processes or -1, which means that. Only -1 with --async_training.",
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
    from terngrad_tf import training
    from terngrad_tf.training import checks

    aggregate = checks.integers(1, 2**31 - 1, also=-1)
    checks.ranges(values, {"num_replicas_to_aggregate": aggregate})
    found = host_flags.cluster(values, values.job_name, values.ps_hosts)
    if found is None:
        raise training.UserError(
            f"`worker_hosts` must be given, or one of {', '.join(host_flags.SOURCES[1:])} or the "
            "environment variable TF_CONFIG. Received: worker_hosts=''"
        )
    return found


def describe(values, cluster):
    """Lines that say which hosts there are, what this process is, and how the cluster trains.

    Args:
        values: parsed `absl.flags.FlagValues`.
        cluster: from `cluster`.
    """
    jobs = cluster.cluster_spec().as_dict()
    # TF_CONFIG may call the first worker the chief.
    workers = [*jobs.get("chief", []), *jobs.get(host_flags.WORKER, [])]
    servers = jobs.get("ps", [])
    rank = cluster.task_id
    if cluster.task_type == "ps":
        own = f"parameter server {rank} of {len(servers)}"
    else:
        rank += len(jobs.get("chief", [])) if cluster.task_type == host_flags.WORKER else 0
        own = f"worker {rank} of {len(workers)}{', the chief' if rank == 0 else ''}"
    how = "asynchronous" if values.async_training else "synchronous"
    gradients = "ternary" if values.grad_bits == 1 else "float"
    return [
        f"PS hosts are: {servers}",
        f"Worker hosts are: {workers}",
        f"This process is {own}; {how} training, {gradients} gradients",
    ]


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
    return train_flags.options(values)


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
    own = train_flags.options(values)
    return dataclasses.replace(own, batch_size=own.batch_size * num_processes), workers

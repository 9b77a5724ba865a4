"""Clusters from the flags of TernGrad's programs, or from a rank table.

Pass the results to `TernGradStrategy(cluster_resolver=...)`. The module `tf_config` reads
`TF_CONFIG`; `tf.distribute.cluster_resolver` has resolvers for Slurm and Kubernetes.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad_tf.common.addresses import not_for_others, parse_addresses
from terngrad_tf.common.files import PathLike
from terngrad_tf.distribute.cluster import rank_table

_JOBS = ("worker", "ps")
_DEFAULT_PORT = 2222


def cluster_from_hosts(
    *, worker_hosts: str, job_name: str = "worker", task_id: int = 0, ps_hosts: str = ""
) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the cluster of TernGrad's flags --worker_hosts, --ps_hosts, --job_name, --task_id.

    Worker 0 is the chief. Synchronous training uses only the workers, which hold the parameters.

    Example:
    >>> resolver = cluster_from_hosts(worker_hosts="a:2222,b:2222", task_id=1)
    >>> resolver.cluster_spec().as_dict()
    {'worker': ['a:2222', 'b:2222']}

    Args:
        worker_hosts: "host:port,host:port,...", the same on every host.
        job_name: this process's job, "worker" or "ps". Default "worker".
        task_id: index of this process in its job's list. Default 0.
        ps_hosts: addresses of parameter servers. Default "" (none).

    Returns:
        A `tf.distribute.cluster_resolver.SimpleClusterResolver`.

    Raises:
        ValueError: an argument is out of range.
    """
    jobs = {"worker": parse_addresses("worker_hosts", worker_hosts)}
    if ps := parse_addresses("ps_hosts", ps_hosts):
        jobs["ps"] = ps
    if not jobs["worker"]:
        raise ValueError("`worker_hosts` must name a worker. Received: worker_hosts=''")
    shared = set(jobs["worker"]) & set(ps)
    if shared:
        raise ValueError(
            f"`ps_hosts` must not name a worker's address. Received: {min(shared)} in both"
        )
    if wrong := not_for_others([*jobs["worker"], *ps]):
        raise ValueError(f"`ps_hosts` must hold addresses for all machines: {wrong}")
    if job_name not in _JOBS:
        raise ValueError(f"`job_name` must be one of {_JOBS}. Received: job_name={job_name!r}")
    count = len(jobs.get(job_name, ()))
    if not 0 <= task_id < count:
        raise ValueError(
            f"`task_id` must lie in [0, {count}), the addresses in `{job_name}_hosts`."
            f" Received: task_id={task_id}"
        )
    return _resolver(jobs, job_name, task_id)


def cluster_from_rank_table(
    path: PathLike, rank_id: int, *, port: int = _DEFAULT_PORT
) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the cluster of a rank table, a JSON file of MindSpore's distributed training.

    Each device is a worker, in the order of `rank_id`, at its `device_ip`. Ranks with the same
    address take consecutive ports from `port` on.

    Args:
        path: the JSON file, the same on every host.
        rank_id: this process's `rank_id`, an int.
        port: TCP port of the first worker at an address. Default 2222.

    Returns:
        A `tf.distribute.cluster_resolver.SimpleClusterResolver`.

    Raises:
        ValueError: the file is not a completed rank table of version 1.0, or has no such rank.
        OSError: the file cannot be read.
    """
    addresses = rank_table.addresses(rank_table.read_rank_table(path), port)
    if not 0 <= rank_id < len(addresses):
        raise ValueError(
            f"`rank_id` must be one of the {len(addresses)} ranks of {path}."
            f" Received: rank_id={rank_id}"
        )
    return _resolver({"worker": addresses}, "worker", rank_id)


def workers_only(
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the cluster without its parameter servers, for synchronous training.

    Example:
    >>> resolver = cluster_from_hosts(worker_hosts="a:2222,b:2222", ps_hosts="c:2222")
    >>> workers_only(resolver).cluster_spec().as_dict()
    {'worker': ['a:2222', 'b:2222']}

    Args:
        cluster_resolver: a `tf.distribute.cluster_resolver.ClusterResolver` of a worker.

    Returns:
        A `tf.distribute.cluster_resolver.SimpleClusterResolver`.
    """
    jobs = cluster_resolver.cluster_spec().as_dict()
    return _resolver(
        {job: jobs[job] for job in ("chief", "worker") if job in jobs},
        cluster_resolver.task_type,
        cluster_resolver.task_id,
    )


def cluster_of(
    addresses: Sequence[str], index: int
) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the cluster of these workers, the chief first; this process is worker `index`.

    Example:
    >>> cluster_of(["a:2222", "b:2222"], 1).task_id
    1
    """
    return _resolver({"worker": list(addresses)}, "worker", index)


def _resolver(jobs, job_name, task_id):
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(jobs), task_type=job_name, task_id=task_id, rpc_layer="grpc"
    )

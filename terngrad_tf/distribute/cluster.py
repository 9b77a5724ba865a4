"""The hosts of a cluster, from the flags of TernGrad's programs or from a rank table.

What these functions return, `TernGradStrategy(cluster_resolver=...)` takes. For `TF_CONFIG`, Slurm
and Kubernetes TensorFlow has resolvers of its own: see `tf.distribute.cluster_resolver`.
"""

import collections
import ipaddress
import json
import re

import tensorflow as tf

from terngrad_tf.hosts import parse_hosts

_JOBS = ("worker", "ps")
_DEFAULT_PORT = 2222

# Keys of a rank table: those that must be there, and those that may.
_TABLE_KEYS = ({"version", "server_list", "status"}, {"server_count"})
_SERVER_KEYS = ({"server_id", "device"}, {"host_nic_ip"})
_DEVICE_KEYS = ({"device_id", "device_ip", "rank_id"}, set())


def cluster_from_hosts(*, worker_hosts, job_name="worker", task_id=0, ps_hosts=""):
    """The cluster that TernGrad's flags --worker_hosts, --ps_hosts, --job_name, --task_id describe.

    Worker 0 is the chief. Synchronous training uses the workers alone: the parameters live there.

    Example:
    >>> resolver = cluster_from_hosts(worker_hosts="a:2222,b:2222", task_id=1)
    >>> resolver.cluster_spec().as_dict()
    {'worker': ['a:2222', 'b:2222']}

    Args:
        worker_hosts: "host:port,host:port,...", the same on every host.
        job_name: this process's job, "worker" or "ps". Default "worker".
        task_id: this process's place in its job's list, from 0. Default 0.
        ps_hosts: addresses of parameter servers. Default "" (none).

    Returns:
        A `tf.distribute.cluster_resolver.SimpleClusterResolver`.

    Raises:
        ValueError: an argument is out of range.
    """
    jobs = {"worker": parse_hosts("worker_hosts", worker_hosts)}
    if ps := parse_hosts("ps_hosts", ps_hosts):
        jobs["ps"] = ps
    if not jobs["worker"]:
        raise ValueError("`worker_hosts` must name a worker. Received: worker_hosts=''")
    shared = set(jobs["worker"]) & set(ps)
    if shared:
        raise ValueError(
            f"`ps_hosts` must not name a worker's address. Received: {min(shared)} in both"
        )
    if job_name not in _JOBS:
        raise ValueError(f"`job_name` must be one of {_JOBS}. Received: job_name={job_name!r}")
    count = len(jobs.get(job_name, ()))
    if not 0 <= task_id < count:
        raise ValueError(
            f"`task_id` must lie in [0, {count}), the addresses in `{job_name}_hosts`."
            f" Received: task_id={task_id}"
        )
    return _resolver(jobs, job_name, task_id)


def cluster_from_rank_table(path, rank_id, *, port=_DEFAULT_PORT):
    """The cluster of a rank table, the JSON file that MindSpore's distributed training reads.

    Each device of the table is a worker, in the order of `rank_id`, reached at its `device_ip`.
    Ranks that share an address take consecutive ports from `port` on, in the order of their ranks.

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
    with open(path, encoding="utf-8") as file:
        try:
            table = json.load(file, object_pairs_hook=_without_repetition)
        except ValueError as error:
            raise ValueError(f"{path}: a rank table must be JSON: {error}") from error
    try:
        addresses = _rank_addresses(table, port)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not 0 <= rank_id < len(addresses):
        raise ValueError(
            f"`rank_id` must be one of the {len(addresses)} ranks of {path}."
            f" Received: rank_id={rank_id}"
        )
    return _resolver({"worker": addresses}, "worker", rank_id)


def workers_only(cluster_resolver):
    """The cluster without its parameter servers, for synchronous training.

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


def _resolver(jobs, job_name, task_id):
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(jobs), task_type=job_name, task_id=task_id, rpc_layer="grpc"
    )


def _without_repetition(pairs):
    repeated = [key for key, count in collections.Counter(k for k, _ in pairs).items() if count > 1]
    if repeated:
        raise ValueError(f"`{repeated[0]}` stands twice in one object")
    return dict(pairs)


def _rank_addresses(table, port):
    _check_keys(table, "the table", *_TABLE_KEYS)
    if table["version"] != "1.0":
        raise ValueError(f'`version` must be "1.0". Received: {table["version"]!r}')
    if table["status"] != "completed":
        raise ValueError(f'`status` must be "completed". Received: {table["status"]!r}')
    servers = _list(table, "server_list")
    if "server_count" in table and _integer(table, "server_count") != len(servers):
        raise ValueError(
            f"`server_count` must be the length of `server_list`, {len(servers)}."
            f" Received: {table['server_count']!r}"
        )
    ips = {}
    for server in servers:
        _check_keys(server, "a server", *_SERVER_KEYS)
        for device in _list(server, "device"):
            _check_keys(device, "a device", *_DEVICE_KEYS)
            _integer(device, "device_id")
            rank = _integer(device, "rank_id")
            if rank in ips:
                raise ValueError(f"`rank_id` must be unique. Received twice: {rank}")
            ips[rank] = _ip(device["device_ip"])
    if sorted(ips) != list(range(len(ips))):
        raise ValueError(f"`rank_id` must count from 0 without gaps. Received: {sorted(ips)}")
    seen = collections.Counter()
    addresses = []
    for rank in range(len(ips)):
        addresses.append(f"{ips[rank]}:{port + seen[ips[rank]]}")
        seen[ips[rank]] += 1
    return addresses


def _check_keys(value, name, required, optional):
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object. Received: {value!r}")
    for key in sorted(required - set(value)):
        raise ValueError(f"{name} must have `{key}`. Received: {', '.join(value) or 'nothing'}")
    for key in sorted(set(value) - required - optional):
        raise ValueError(
            f"{name} must have no key but {sorted(required | optional)}. Received: {key}"
        )


def _list(value, key):
    if not isinstance(value[key], list) or not value[key]:
        raise ValueError(f"`{key}` must be a list that is not empty. Received: {value[key]!r}")
    return value[key]


def _integer(value, key):
    text = str(value[key])
    if isinstance(value[key], bool) or not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"`{key}` must be an integer, 0 or more. Received: {value[key]!r}")
    return int(text)


def _ip(text):
    try:
        address = ipaddress.ip_address(text if isinstance(text, str) else "")
    except ValueError:
        raise ValueError(f"`device_ip` must be an IP address. Received: {text!r}") from None
    return f"[{address}]" if address.version == 6 else str(address)

"""The environment variable `TF_CONFIG`, checked before TensorFlow reads it."""

import os
import re

import tensorflow as tf

from terngrad_tf.common import addresses, strict_json
from terngrad_tf.common.arguments import did_you_mean, shown

_MUST = "the environment variable TF_CONFIG must"
# Training jobs first.
_JOBS = ("chief", "worker", "ps", "evaluator")
# Keys that TensorFlow reads.
_KEYS = ("cluster", "task", "rpc_layer", "environment", "session_master")


def cluster_from_tf_config() -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the cluster of the environment variable `TF_CONFIG`, after checking the variable.

    Returns:
        A `tf.distribute.cluster_resolver.TFConfigClusterResolver`, empty without the variable.

    Raises:
        ValueError: the variable is not JSON, or not a valid `TF_CONFIG`.

    Source: the guide "Distributed training with TensorFlow", on setting `TF_CONFIG`.
    """
    text = os.environ.get("TF_CONFIG")
    if text is not None:
        _check_tf_config(_parsed(text))
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def _parsed(text):
    if not text.strip():
        raise ValueError(f"{_MUST} be JSON. Received: nothing; unset it where there is no cluster")
    try:
        return strict_json.parse_json(text)
    except ValueError as error:
        why = str(error)
    raise ValueError(f"{_MUST} be JSON: {why}. Received: {shown(text)}")


def _check_tf_config(config):
    is_known = isinstance(config, dict) and (not config or not config.keys().isdisjoint(_KEYS))
    _check(config, is_known, 'an object with "cluster" and "task"')
    for key in config:
        # Platforms add other keys.
        hint = did_you_mean(key, _KEYS) if key not in _KEYS else ""
        _check(key, not hint, f'"cluster", "task" or keys unlike them{hint}')
    cluster = config.get("cluster", {})
    _check(cluster, isinstance(cluster, dict), "an object of jobs", "cluster")
    _check_cluster(cluster)
    task = config.get("task", {})
    _check(task, isinstance(task, dict), 'an object with "type" and "index"', "task")
    _check_task(task, cluster)
    for name in ("rpc_layer", "environment", "session_master"):
        _check(config.get(name), isinstance(config.get(name, ""), str), "text", name)


def _check_cluster(cluster):
    all_addresses = []
    for job, tasks in cluster.items():
        hint = did_you_mean(job, _JOBS)
        _check(job, job in _JOBS, f"jobs called {', '.join(_JOBS)}{hint}", "cluster")
        place = f"cluster.{job}"
        _check(tasks, isinstance(tasks, list), "a list of addresses", place)
        for address in tasks:
            rule = "a list of host:port"
            advice = addresses.advice(address)
            _check(address, addresses.is_address(address), rule, place, advice)
        _check(tasks, job != "chief" or len(tasks) == 1, "one address", place)
        all_addresses += tasks
    twice = addresses.first_twice(all_addresses)
    _check(twice, twice is None, "each address once", "cluster")
    wrong = addresses.not_for_others(all_addresses)
    if wrong:
        raise ValueError(f"{_MUST} hold, as cluster, addresses for all machines: {wrong}")


def _check_task(task, cluster):
    job, index = task.get("type"), task.get("index", None if cluster else 0)
    _check(job, job is None or isinstance(job, str), "text", "task.type")
    if cluster:
        _check(job, job in cluster, f"one of the jobs {', '.join(cluster)}", "task.type")
    rule = "an integer of 0 or more"
    _check(index, re.fullmatch("[0-9]{1,9}", _text_of_integer(index)), rule, "task.index")
    if not cluster:
        # A process with an index above 0 does not train alone.
        _check(index, int(index) == 0, 'a "cluster", or 0', "task.index")
        return
    count = len(cluster[job])
    rule = f"an integer below {count}, the number of {job}s in cluster,"
    _check(index, int(index) < count, rule, "task.index")


def _check(value, condition, rule, place="", advice=""):
    if not condition:
        where = f" as {place}" if place else ""
        raise ValueError(f"{_MUST} hold {rule}{where}.{advice} Received: {shown(value)}")


def _text_of_integer(value):
    return "" if isinstance(value, (bool, float)) else str(value)

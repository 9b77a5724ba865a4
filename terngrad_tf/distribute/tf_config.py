"""The environment variable `TF_CONFIG`, checked before TensorFlow reads it."""

import os
import re

import tensorflow as tf

from terngrad_tf import strict_json
from terngrad_tf.addresses import is_address
from terngrad_tf.arguments import shown


def cluster_from_tf_config() -> tf.distribute.cluster_resolver.ClusterResolver:
    """The cluster of the environment variable `TF_CONFIG`, once it is found to describe one.

    Returns:
        A `tf.distribute.cluster_resolver.TFConfigClusterResolver`. Without the variable its cluster
        is empty.

    Raises:
        ValueError: the variable holds no JSON, or not what `TF_CONFIG` is to hold.

    Source: the guide "Distributed training with TensorFlow", on setting `TF_CONFIG`.
    """
    text = os.environ.get("TF_CONFIG")
    if text is not None:
        try:
            _check_tf_config(_tf_config(text))
        except ValueError as error:
            raise ValueError(f"the environment variable TF_CONFIG {error}") from error
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def _tf_config(text):
    if not text.strip():
        raise ValueError("must be JSON. Received: nothing; unset it where there is no cluster")
    try:
        return strict_json.parse_json(text)
    except ValueError as error:
        raise ValueError(f"must be JSON: {error}. Received: {shown(text)}") from error


def _check_tf_config(config):
    _check(config, isinstance(config, dict), 'an object with "cluster" and "task"')
    cluster = config.get("cluster", {})
    _check(cluster, isinstance(cluster, dict), "an object of jobs", "cluster")
    for job, tasks in cluster.items():
        place = f"cluster.{job}"
        _check(tasks, isinstance(tasks, list), "a list of addresses", place)
        for address in tasks:
            _check(address, is_address(address), "a list of host:port", place)
    task = config.get("task", {})
    _check(task, isinstance(task, dict), 'an object with "type" and "index"', "task")
    job, index = task.get("type"), task.get("index", 0)
    _check(job, job is None or isinstance(job, str), "text", "task.type")
    rule = "an integer of 0 or more"
    _check(index, re.fullmatch("[0-9]{1,9}", _text_of_integer(index)), rule, "task.index")
    if cluster:
        _check(job, job in cluster, f"one of the jobs {', '.join(cluster)}", "task.type")
        count = len(cluster[job])
        _check(index, int(index) < count, f"below {count}, the {job}s in cluster", "task.index")
    for name in ("rpc_layer", "environment", "session_master"):
        _check(config.get(name), isinstance(config.get(name, ""), str), "text", name)


def _check(value, condition, rule, place=""):
    if not condition:
        where = f" as {place}" if place else ""
        raise ValueError(f"must hold {rule}{where}. Received: {shown(value)}")


def _text_of_integer(value):
    return "" if isinstance(value, (bool, float)) else str(value)

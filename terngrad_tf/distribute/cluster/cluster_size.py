"""Compares the number of processes of a cluster with the expected number."""

import os

import tensorflow as tf

from terngrad_tf.common.arguments import shown

VARIABLE = "TERNGRAD_TF_NUM_PROCESSES"


def check_size(
    num_processes: int | None, cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver
) -> None:
    """Raises ValueError for a cluster of another size, such as a process without `TF_CONFIG`.

    Without `num_processes` or the variable TERNGRAD_TF_NUM_PROCESSES, any size is right.
    """
    name = "`num_processes`"
    if num_processes is None:
        text = os.environ.get(VARIABLE)
        if text is None:
            return
        name = f"the environment variable {VARIABLE}"
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise ValueError(f"{name} must be a positive integer. Received: {shown(text)}")
        num_processes = int(text)
    jobs = cluster_resolver.cluster_spec().as_dict()
    count = sum(len(jobs.get(job, ())) for job in ("chief", "worker"))
    if (count or 1) != num_processes:
        found = f"a cluster of {count}" if count else "no cluster: is TF_CONFIG set on this host?"
        raise ValueError(
            f"{name} must be the number of processes that train. Received: {num_processes}, with"
            f" {found}"
        )

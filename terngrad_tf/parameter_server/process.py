"""The processes of asynchronous training: start, messages and end of servers and workers.

Worker 0 is the chief, which schedules all steps. The others only run a TensorFlow server. Messages
are files in a process's memory ("ram://"), which the chief reads and writes by TensorFlow's file
operations.
"""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from terngrad_tf.common import tokens
from terngrad_tf.distribute.communication import connections, failures, peers

_FOLDER = "ram://terngrad_tf"
_METADATA, _DATASET, _END = (f"{_FOLDER}/{name}" for name in ("metadata", "dataset", "end"))

_POLL_SECONDS = 1.0
_LOOK_SECONDS = 5.0
# As long as synchronous training waits for a peer whose link is cut.
LOST_SECONDS = 25.0
# The chief frees its tensors on the servers after the end of training.
_FAREWELL_SECONDS = 60.0
# Less than schedulers wait between SIGTERM and SIGKILL.
_GRACE_SECONDS = 25.0


def cluster_tasks(cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver) -> Any:
    """`Tasks` of a cluster with parameter servers: workers first, then servers.

    Raises:
        ValueError: a job is missing, this process is in neither, or it has a token, which parameter
            servers do not support.
    """
    if tokens.token_from_environment() is not None:
        raise ValueError(
            f"the environment variable {tokens.VARIABLE} must not be set with parameter servers,"
            " which do not support tokens"
        )
    cluster = cluster_resolver.cluster_spec().as_dict()
    jobs = ("worker", "ps")
    for job in jobs:
        if not cluster.get(job):
            raise ValueError(
                f"`{job}_hosts` must name a process for asynchronous training. Received: none"
            )
    return peers.tasks_of(cluster_resolver, jobs)


def start_server(
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
    metadata: Mapping[str, Any],
    dataset: tf.data.Dataset | None = None,
) -> Any:
    """Starts this process's `tf.distribute.Server`, which ends with the returned object.

    The chief reads `metadata`, a dict for JSON.
    """
    tasks = cluster_tasks(cluster_resolver)
    tf.io.gfile.makedirs(_FOLDER)
    _write(_METADATA, json.dumps(metadata).encode())
    if dataset is not None:
        # The graph of a data set needs no Python of this process.
        variant = tf.data.experimental.to_variant(dataset)
        _write(
            f"{_DATASET}-{cluster_resolver.task_id}",
            tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy(),
        )
    jobs = {job: cluster_resolver.cluster_spec().as_dict()[job] for job in ("worker", "ps")}
    try:
        return tf.distribute.Server(
            tf.train.ClusterSpec(jobs),
            job_name=cluster_resolver.task_type,
            task_index=cluster_resolver.task_id,
            protocol="grpc",
        )
    except tf.errors.OpError as error:
        raise peers.PeerError(failures.explain(str(error), tasks)) from error


def serve(
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
    metadata: Mapping[str, Any],
    dataset: tf.data.Dataset | None = None,
    *,
    start_timeout: float = 600,
) -> None:
    """Runs a parameter server, or a worker other than the chief, until the chief ends.

    A server without data outlives SIGTERM for `_GRACE_SECONDS`, so that a chief which got the
    signal, too, can save.

    Raises:
        PeerError: the chief did not start, is lost or stopped with an error.
    """
    tasks = cluster_tasks(cluster_resolver)
    with _delayed_sigterm(is_wanted=dataset is None) as end_if_told:
        server = start_server(cluster_resolver, metadata, dataset)
        watch, chief = connections.Watch(), tasks.addresses[0]
        deadline, next_look, seen = time.monotonic() + start_timeout, 0.0, False
        while not tf.io.gfile.exists(_END):
            failure, seconds = watch.look(chief)
            end_if_told(seen)
            if failure is None:
                seen = True
                if time.monotonic() > next_look:
                    _shutdown_lost(watch, tasks)
                    next_look = time.monotonic() + _LOOK_SECONDS
            elif not seen and time.monotonic() > deadline:
                raise peers.PeerError(f"{tasks.describe(0, failure)} did not start in time")
            elif seen and is_lost(failure, seconds):
                raise peers.PeerError(f"lost {tasks.describe(0, failure)}")
            time.sleep(_POLL_SECONDS)
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while watch.look(chief)[0] is None and time.monotonic() < deadline:
            end_if_told(seen)
            time.sleep(_POLL_SECONDS)
        with tf.io.gfile.GFile(_END, "r") as file:
            exit_reason = file.read()
        del server  # which runs until here
    if exit_reason:
        raise peers.PeerError(f"{tasks.describe(0)} ended training: {exit_reason}")


@contextlib.contextmanager
def _delayed_sigterm(is_wanted: bool) -> Iterator[Callable[[bool], None]]:
    """Delays the effect of SIGTERM if `is_wanted`, but not of a second one.

    Yields:
        Function that has the effect if it is due, or if its argument, whether training runs, is
        False.
    """
    told = None

    def note(*_):
        nonlocal told
        told = time.monotonic()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def end_if_told(trains):
        if told is not None and not (trains and time.monotonic() - told < _GRACE_SECONDS):
            os.kill(os.getpid(), signal.SIGTERM)

    is_main = threading.current_thread() is threading.main_thread()
    if not (is_wanted and is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL):
        yield end_if_told
        return
    signal.signal(signal.SIGTERM, note)
    try:
        yield end_if_told
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_lost(failure: str | None, seconds: float) -> bool:
    """True if another process is lost, by a result of `connections.Watch.look`."""
    limit = _POLL_SECONDS if failure == connections.REFUSED else LOST_SECONDS
    return failure is not None and seconds > limit


def _shutdown_lost(watch, tasks):
    """Closes the connections to lost processes, which might block this one."""
    for index, address in enumerate(tasks.addresses):
        if index not in (0, tasks.index) and is_lost(*watch.look(address)):
            connections.shutdown_sockets(address)


def read_metadata(device: str) -> dict[str, Any]:
    """The metadata of the process of a device, such as "/job:ps/replica:0/task:0"."""
    with tf.device(f"{device}/device:CPU:0"):
        return json.loads(tf.io.read_file(_METADATA).numpy())


def own_dataset(element_spec: Any) -> Any:
    """The data set of the process that runs the calling function, which the chief scheduled."""
    # With a constant name, graph optimization would read the file.
    worker = tf.distribute.coordinator.experimental_get_current_worker_index()
    name = tf.strings.join([f"{_DATASET}-", tf.strings.as_string(worker)])
    variant = tf.raw_ops.DatasetFromGraph(graph_def=tf.io.read_file(name))
    return tf.data.experimental.from_variant(variant, element_spec)


def request_shutdown(device: str, exit_reason: str) -> None:
    """Ends the process of a device, without an error if `exit_reason` is "" (see `serve`)."""
    with tf.device(f"{device}/device:CPU:0"):
        tf.io.write_file(_END, exit_reason)


def _write(name, content):
    with tf.io.gfile.GFile(name, "wb") as file:
        file.write(content)

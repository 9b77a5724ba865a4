"""The cluster of asynchronous training, on its chief."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.communication import connections, failures, peers
from terngrad_tf.distribute.consistency import handshake
from terngrad_tf.parameter_server import process

_GOODBYE_SECONDS = 20.0


class ParameterServerCluster:
    """Connects worker 0, the chief, to the parameter servers and to all workers.

    A free worker runs the next function that the chief schedules. If a worker is lost, another runs
    its function; a worker that returns gets functions again. A lost server ends training.

    TensorFlow's context must not hold earlier tensors or variables.

    Args:
        metadata: dict for JSON with "code" from `handshake.code_metadata`; "run", values that all
            workers must share; and "own", values of this worker. Servers have "code" alone.

    Raises:
        PeerError: a process is missing or was started differently.
    """

    def __init__(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        metadata: Mapping[str, Any],
        dataset: tf.data.Dataset,
        *,
        start_timeout: float = 600,
    ) -> None:
        self.tasks = process.cluster_tasks(cluster_resolver)
        jobs = cluster_resolver.cluster_spec().as_dict()
        self.num_workers = len(jobs["worker"])
        self.worker_devices = [f"/job:worker/replica:0/task:{i}" for i in range(self.num_workers)]
        self.server_devices = [f"/job:ps/replica:0/task:{i}" for i in range(len(jobs["ps"]))]
        self._server = process.start_server(cluster_resolver, metadata, dataset)
        peers.wait_for_all(self.tasks, start_timeout)
        strategy = tf.distribute.ParameterServerStrategy(_with_coordinator(jobs))
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self.metadata = [
            process.read_metadata(d) for d in self.worker_devices + self.server_devices
        ]
        element_spec = dataset.element_spec
        self.batches = iter(
            self.coordinator.create_per_worker_dataset(lambda: process.own_dataset(element_spec))
        )
        self._watch = connections.Watch()
        self._lost = set()

    def compare(self) -> None:
        """Raises PeerError if processes run other code or workers were started differently."""
        names = self.tasks.names
        of_all = handshake.diff([one["code"] for one in self.metadata], names)
        workers = slice(self.num_workers)
        of_workers = handshake.diff([one["run"] for one in self.metadata[workers]], names[workers])
        if different := [*of_all.values(), *of_workers.values()]:
            raise peers.PeerError(f"the processes were started differently: {'; '.join(different)}")

    def check_peers(self) -> Any:
        """Probes all processes. Returns a line for each worker that was lost or came back.

        Raises:
            PeerError: a parameter server is lost.
        """
        lines = []
        for index, address in enumerate(self.tasks.addresses):
            failure, seconds = self._watch.look(address)
            is_lost = process.is_lost(failure, seconds)
            if is_lost:
                # Requests that wait for the process fail, and another worker does the step.
                connections.shutdown_sockets(address)
            if index >= self.num_workers:
                if is_lost:
                    raise peers.PeerError(f"lost {self.tasks.describe(index, failure)}")
            elif failure is None:
                if index in self._lost:
                    self._lost.remove(index)
                    lines.append(f"{self.tasks.describe(index)} is back")
            elif is_lost and index not in self._lost:
                self._lost.add(index)
                lines.append(f"lost {self.tasks.describe(index, failure)}; going on without it")
        return lines

    def is_loss_of_worker(self, error: BaseException) -> bool:
        """True if a scheduled function's exception only reports a lost worker."""
        if not isinstance(error, tf.errors.UnavailableError):
            return False
        concerned = {*peers.unreachable(self.tasks), *failures.named(str(error), self.tasks)}
        return bool(concerned) and all(index < self.num_workers for index in concerned)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turns TensorFlow's errors after the loss of a process into a one-line `PeerError`."""
        try:
            yield
        except Exception as error:
            # TensorFlow raises errors of many types.
            lost = peers.unreachable(self.tasks)
            fatal = any(index >= self.num_workers for index in lost) or (
                lost and isinstance(error, tf.errors.OpError)
            )
            if isinstance(error, peers.PeerError) or not fatal:
                raise
            raise peers.PeerError(peers.lost(self.tasks, lost)) from error

    def end(self, exit_reason: str = "") -> None:
        """Ends all other processes after this one; without an error if `exit_reason` is ""."""
        # A thread: TensorFlow might wait for a lost process.
        requests = threading.Thread(
            target=self._request_shutdowns, args=(exit_reason,), daemon=True
        )
        requests.start()
        requests.join(_GOODBYE_SECONDS)

    def _request_shutdowns(self, exit_reason):
        devices = self.worker_devices + self.server_devices
        _, *others = zip(devices, self.tasks.addresses, strict=True)
        for device, address in others:
            with contextlib.suppress(tf.errors.OpError):
                if connections.connection_failure(address) is None:
                    process.request_shutdown(device, exit_reason)


def _with_coordinator(jobs):
    """Resolver of the cluster and its coordinator, on a free port of worker 0's host."""
    host = jobs["worker"][0].rpartition(":")[0]
    with socket.create_server(("", 0)) as unused:
        port = unused.getsockname()[1]
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({**jobs, "chief": [f"{host}:{port}"]}),
        task_type="chief",
        task_id=0,
        rpc_layer="grpc",
    )

"""The chief's part in asynchronous training: steps are scheduled, their results looked at."""

import queue
import threading
import time

from terngrad_tf.training import callbacks

# Scheduled steps a worker: enough for the fast ones while a slow one is at its step.
_STEPS_AHEAD = 8
_POLL_SECONDS = 1.0
_LOOK_SECONDS = 5.0


class StepQueue:
    """Keeps all workers busy and hands out what their steps returned.

    Args:
        cluster: `ParameterServerCluster`.
    """

    def __init__(self, cluster):
        self._cluster = cluster
        self._looked = time.monotonic()
        self._scheduled = queue.SimpleQueue()
        self._results = queue.SimpleQueue()
        self._num_open = 0
        # Waiting for a result has no time limit in TensorFlow. A server that is cut off must be
        # found, though, and a thread that still waits must not keep the process.
        threading.Thread(target=self._fetch, daemon=True).start()

    @property
    def num_open(self):
        """Steps scheduled whose results have not been handed out."""
        return self._num_open

    @property
    def is_full(self):
        """Whether enough steps are scheduled."""
        return self._num_open >= _STEPS_AHEAD * self._cluster.num_workers

    def schedule(self, function):
        """Lets a worker that is free run a function of its iterator of batches."""
        coordinator = self._cluster.coordinator
        self._scheduled.put(coordinator.schedule(function, args=(self._cluster.batches,)))
        self._num_open += 1

    def next(self):
        """Waits for a result; tells meanwhile which workers are lost or come back.

        Returns:
            What a scheduled function returned, its tensors as NumPy values; None where the step was
            done but its worker was lost before it could tell.

        Raises:
            PeerError: a parameter server is lost.
        """
        while True:
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                for line in self._cluster.check_peers():
                    callbacks.log(line)
                self._looked = time.monotonic()
            try:
                result = self._results.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if self._cluster.is_loss_of_worker(result):
                result = None
            if isinstance(result, BaseException):
                raise result
            self._num_open -= 1
            return result

    def _fetch(self):
        while True:
            value = self._scheduled.get()
            try:
                self._results.put(value.fetch())
            except BaseException as error:
                self._results.put(error)

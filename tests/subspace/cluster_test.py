"""Tests of training in a subspace over real processes on loopback."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.subspace.samples import build_under, data, flat, new_folder, subspace_optimizer

WORKER = pathlib.Path(__file__).with_name("cluster_worker.py")
ROOT = WORKER.parents[2]
TIMEOUT = 150
NUM_HOSTS = 2


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return addresses


def run_cluster(folder, **config):
    """Runs `cluster_worker.py` on every host and returns what each left."""
    addresses = free_addresses(NUM_HOSTS)
    processes = []
    for index in range(NUM_HOSTS):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = dict(
            os.environ,
            TF_CONFIG=json.dumps(task),
            TF_CPP_MIN_LOG_LEVEL="2",
            PYTHONPATH=f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        )
        arguments = [str(folder / f"{index}.npz"), json.dumps({**config, "folder": str(folder)})]
        processes.append(
            subprocess.Popen(
                [sys.executable, str(WORKER), *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=TIMEOUT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-3000:]
    return [
        dict(np.load(folder / f"{index}.npz", allow_pickle=False)) for index in range(NUM_HOSTS)
    ]


class ClusterTest(tf.test.TestCase):
    def check_second_phase(self, num_local, alpha):
        results = run_cluster(
            new_folder(self), job="second_phase", num_local=num_local, alpha=alpha
        )
        model = build_under(
            tf.distribute.get_strategy(), subspace_optimizer(sigma=0.9, alpha=alpha)
        )
        x, y = data()
        history = model.fit(x, y, batch_size=48, epochs=2, shuffle=False, verbose=0).history
        for result in results:
            for name, value in results[0].items():
                np.testing.assert_array_equal(result[name], value, err_msg=name)
            np.testing.assert_array_equal(result["resumed"], result["weights"])
            np.testing.assert_allclose(result["weights"], flat(model), atol=1e-3)
            np.testing.assert_allclose(result["loss"], history["loss"], atol=1e-4)

    def test_two_hosts_step_as_one_replica_alike_to_the_bit_and_resume(self):
        self.check_second_phase(1, 0.0)

    def test_two_hosts_with_two_workers_each_and_momentum_outside(self):
        self.check_second_phase(2, 0.05)

    def test_the_chief_alone_writes_snapshots(self):
        first, second = run_cluster(new_folder(self), job="first_phase")
        self.assertTrue(first["wrote"])
        self.assertFalse(second["wrote"])
        np.testing.assert_array_equal(first["weights"], second["weights"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

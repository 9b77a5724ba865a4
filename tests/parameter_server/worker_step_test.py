"""Tests of asynchronous steps over real processes on loopback."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import runs
from tests.distribute import processes
from tests.parameter_server.async_worker import EXACT_STEP

WORKER = pathlib.Path(__file__).with_name("async_worker.py")


class AsyncStepTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_one_worker_and_two_servers_do_what_plain_training_does(self):
        file = runs.class_folder(type(self)) / "arrays.npz"
        ports = processes.free_ports(3)
        worker, *servers = [f"127.0.0.1:{port}" for port in ports]
        started = [
            subprocess.Popen(
                [
                    *(sys.executable, WORKER),
                    *(job, str(task), worker, ",".join(servers), file),
                ],
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for job, task in (("ps", 0), ("ps", 1), ("worker", 0))
        ]
        outputs = processes.outputs(started, 200)
        for process, output in zip(started, outputs, strict=True):
            self.assertEqual(process.returncode, 0, output[-3000:])
        found = dict(np.load(file, allow_pickle=False))
        self.assertAllEqual(found["found/pulled"], [0, 1, 2, 3, 4])
        self.assertAllEqual(found["found/step"], [1, 2, 3, 4, 5])
        self.assertAllEqual(found["found/worker"], [0] * 5)
        np.testing.assert_allclose(found["found/total_loss"], found["loss"], rtol=1e-4)
        names = [name.partition("/")[2] for name in found if name.startswith("plain/")]
        # Weights, statistics, steps, accumulators and moving averages.
        self.assertLen(names, 7 + 1 + 5 + 5 + 2)
        for name in names:
            np.testing.assert_allclose(
                found[f"asynchronous/{name}"], found[f"plain/{name}"], 1e-4, 1e-5, err_msg=name
            )
        # A scale for the convolution; floats for gamma, beta, logits and two moments of batch norm.
        floats = 4 * (1 + 6 + 6 + 240 + 10 + 6 + 6)
        exact = found["found/pushed_bytes"][EXACT_STEP]
        self.assertEqual(exact, floats - 4 + 4 * 54)
        for num_bytes in np.delete(found["found/pushed_bytes"], EXACT_STEP):
            # The convolution's 54 codes travel in a padded stream of up to 32 words.
            self.assertBetween(num_bytes, floats + 4 * 3, floats + 4 * (2 + 32))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

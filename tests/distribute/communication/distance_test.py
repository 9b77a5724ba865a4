"""Tests of slow and stalling links between hosts in network namespaces, as root."""

import contextlib
import io
import json
import pathlib
import sys
import time

import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from tests.distribute import processes
from tests.distribute.communication import failing_worker, network

WORKER = pathlib.Path(__file__).with_name("failing_worker.py")
NUM_HOSTS = 2
ROUND_TRIP = 0.2
STALL_SECONDS = 10
TIMEOUT_SECONDS = 200
# Gradients travel in every step, or weight changes in every fourth.
TRAININGS = {"num_steps": 8}, {"num_steps": 8, "sync_every": 4}


class DistanceTest(tf.test.TestCase):
    @pytest.mark.long
    def test_neither_distance_nor_stalls_change_the_weights(self):
        hosts = network.up(self, "tgd", "10.86.0", NUM_HOSTS, "none+200ms")
        addresses = hosts.addresses(network.PORT)
        config = json.dumps({"start_timeout": 100, "train": TRAININGS})
        started = []
        for i in range(NUM_HOSTS):
            before = hosts.on_host(i, [])
            started.append(processes.start(WORKER, addresses, i, [config], before=before))
            self.addCleanup(started[-1].wait)
            self.addCleanup(started[-1].kill)
        trained = []
        for line in started[0].stdout:
            if line == "step 2\n":
                hosts.stall(STALL_SECONDS)
                stalled = time.monotonic()
            elif line == "step 7\n":
                self.assertGreater(time.monotonic() - stalled, STALL_SECONDS + ROUND_TRIP)
            elif line.startswith("trained"):
                trained.append(line)
        outputs = ["".join(trained), processes.outputs(started[1:], TIMEOUT_SECONDS)[0]]
        self.assertEqual([process.wait() for process in started], [0] * NUM_HOSTS, outputs)
        # Workers of one process, without links, give the same result.
        with contextlib.redirect_stdout(io.StringIO()):
            for options, line in zip(TRAININGS, trained, strict=True):
                undisturbed = failing_worker.train(TernGradStrategy(NUM_HOSTS), **options)
                self.assertEqual(line, f"trained: {undisturbed}\n")
                self.assertIn(line, outputs[1])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

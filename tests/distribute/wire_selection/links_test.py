"""Tests of clusters with cut links, on hosts in network namespaces, as root."""

import contextlib
import io
import json
import pathlib
import re
import sys
import time

import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from tests.distribute import processes
from tests.distribute.communication import failing_worker, network

WORKER = pathlib.Path(failing_worker.__file__)
NUM_HOSTS = 3
# Seconds until all processes that lost a link have ended.
END_TIMEOUT = 60


class LinksTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.network = network.up(self, "tgl", "10.83.0", NUM_HOSTS)
        self.addresses = self.network.addresses(network.PORT)

    def start(self, *trainings):
        """Starts a process on each host."""
        config = json.dumps({"start_timeout": 100, "train": trainings})
        started = []
        for i in range(NUM_HOSTS):
            before = self.network.on_host(i, [])
            arguments = self.addresses, i, [config]
            started.append(processes.start(WORKER, *arguments, before=before))
            self.addCleanup(started[-1].wait)
            self.addCleanup(started[-1].kill)
        return started

    def read_until(self, process, beginning):
        """The lines that a process prints, up to one that starts with `beginning`."""
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith(beginning):
                return lines
        raise AssertionError("".join(lines))

    @pytest.mark.long
    def test_five_seconds_without_a_link_do_no_harm_and_a_link_lost_for_good_ends_all(self):
        short, long = {"num_steps": 30, "pause": 0.1}, {"num_steps": 3000, "pause": 0.1}
        started = self.start(short, long)
        self.read_until(started[0], "step 3")
        self.network.cut(2)
        time.sleep(5)
        self.network.join(2)
        *_, trained = self.read_until(started[0], "trained")
        # Workers of one process, without links, give the same result.
        with contextlib.redirect_stdout(io.StringIO()):
            undisturbed = failing_worker.train(TernGradStrategy(NUM_HOSTS), num_steps=30)
        self.assertEqual(trained.strip(), f"trained: {undisturbed}")

        self.read_until(started[0], "step 3")
        self.network.cut(2)
        outputs = processes.outputs(started, END_TIMEOUT)
        self.assertEqual([p.returncode for p in started], [3] * NUM_HOSTS, outputs)
        for output in outputs[1:]:
            self.assertIn(trained, output)
        for output in outputs[:2]:
            self.assertRegex(output, rf"(?m)^error: lost worker 2 \({self.addresses[2]}\b.*\)")
        # The disconnected worker reports that the others are gone.
        (error,) = re.findall("(?m)^error: (.*)$", outputs[2])
        self.assertIn(f"worker 0 ({self.addresses[0]}", error)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

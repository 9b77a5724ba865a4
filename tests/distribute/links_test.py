"""Tests of clusters whose links are cut: hosts in network namespaces, as root."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from tests.distribute import processes

WORKER = pathlib.Path(__file__).with_name("failing_worker.py")
NETNS = processes.ROOT / "benchmarks" / "netns.sh"
PREFIX = "tgl"
SUBNET = "10.83.0"
NUM_HOSTS = 3
TIMEOUT = 150


def netns(*arguments):
    return subprocess.run(
        ["bash", str(NETNS), *map(str, arguments)],
        env=dict(os.environ, SUBNET=SUBNET),
        check=False,
        capture_output=True,
        text=True,
    )


class LinksTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() or shutil.which("ip") is None:
            self.skipTest("needs root and iproute2")
        self.addCleanup(netns, "down", PREFIX, NUM_HOSTS)
        result = netns("up", PREFIX, NUM_HOSTS, "none")
        if result.returncode:
            self.skipTest(f"network namespaces are not available: {result.stderr}")

    def start(self, **train):
        """Starts all hosts; returns them when the first has trained for some steps."""
        addresses = [f"{SUBNET}.{i + 1}:4711" for i in range(NUM_HOSTS)]
        config = json.dumps({"start_timeout": 100, "train": [train]})
        started = [
            processes.start(
                WORKER, addresses, i, [config], before=["ip", "netns", "exec", f"{PREFIX}{i}"]
            )
            for i in range(NUM_HOSTS)
        ]
        for process in started:
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        for line in started[0].stdout:
            if line.startswith("step 3"):
                break
        return addresses, started

    def set_link(self, index, state):
        subprocess.run(["ip", "link", "set", f"{PREFIX}v{index}", state], check=True)

    def test_a_link_cut_for_five_seconds_does_no_harm(self):
        _, started = self.start(num_steps=30, pause=0.1)
        self.set_link(2, "down")
        time.sleep(5)
        self.set_link(2, "up")
        outputs = processes.outputs(started, TIMEOUT)
        self.assertEqual([p.returncode for p in started], [0] * NUM_HOSTS, outputs)
        for output in outputs:
            self.assertIn("step 29", output)

    def test_a_link_cut_for_good_ends_all_and_is_named(self):
        addresses, started = self.start(num_steps=3000, pause=0.1)
        self.set_link(2, "down")
        outputs = processes.outputs(started, TIMEOUT)
        self.assertEqual([p.returncode for p in started], [3] * NUM_HOSTS, outputs)
        for output in outputs[:2]:
            self.assertRegex(output, rf"(?m)^error: lost worker 2 \({addresses[2]}\b.*\)")
        # Who is cut off sees the others gone.
        (error,) = re.findall("(?m)^error: (.*)$", outputs[2])
        self.assertIn(f"worker 0 ({addresses[0]}", error)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

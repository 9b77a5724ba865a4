"""What programs whose workers come and go must do."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

import tensorflow as tf

from tests import runs
from tests.distribute import processes

TIMEOUT_SECONDS = 200


class ElasticProgramCases(tf.test.TestCase):
    """Tests of `program`, a module that is a script; to be subclassed."""

    program: Any = None

    def setUp(self):
        super().setUp()
        self.root = runs.class_folder(type(self))
        self.addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(3)]

    def start(self, worker):
        task = {"type": "worker", "index": worker}
        environment = dict(
            os.environ,
            TF_CONFIG=json.dumps({"cluster": {"worker": self.addresses}, "task": task}),
            TF_CPP_MIN_LOG_LEVEL="2",
        )
        with open(self.root / f"{worker}.log", "a") as log:
            process = subprocess.Popen(
                [sys.executable, self.program.__file__, self.root / str(worker)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.addCleanup(processes.kill_group, process)
        return process

    def log(self, worker):
        return pathlib.Path(self.root / f"{worker}.log").read_text()

    def wait_for(self, worker, text):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while text not in self.log(worker):
            self.assertLess(time.monotonic(), deadline, self.log(worker))
            time.sleep(0.02)

    def check_that_a_worker_is_lost_and_comes_back(self):
        started = [self.start(worker) for worker in range(3)]
        self.wait_for(1, "epoch 2 of 3 workers")
        processes.kill_group(started[0])
        self.wait_for(1, "workers 1 and 2 of 3 train")
        started[0] = self.start(0)
        for process in started:
            self.assertEqual(process.wait(TIMEOUT_SECONDS), 0, self.log(1))
        losses = set()
        for worker in range(3):
            log = self.log(worker)
            self.assertIn("workers 1, 0 and 2 of 3 train", log)
            self.assertIn(f"epoch {self.program.EPOCHS} of 3 workers", log)
            losses |= set(re.findall(r"^loss (.*)$", log, re.MULTILINE))
        self.assertLen(losses, 1)
        log = self.log(1)
        self.assertEqual(log.count("; restart 1 of 5"), 1)
        self.assertEqual(log.count("saved, and starts again with further workers"), 1)
        # No saved epoch is repeated, and none is missing.
        epochs = [int(number) for number in re.findall(r"^epoch (\d+) of", log, re.MULTILINE)]
        self.assertEqual(sorted(set(epochs)), list(range(1, self.program.EPOCHS + 1)))
        self.assertLess(len(epochs), self.program.EPOCHS + 3)

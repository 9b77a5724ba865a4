"""Programs with `Checkpoint` continue without a lost worker, and take it in again."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.checkpoints import Checkpoint, files
from terngrad_tf.common import preemption
from terngrad_tf.distribute import NewcomersError, join_cluster
from terngrad_tf.distribute.cluster.membership import MembersFile, SavedState
from terngrad_tf.distribute.cluster.resolvers import cluster_of
from tests.checkpoints import elastic_worker
from tests.distribute import processes
from tests.distribute.elastic import elastic_program_cases


class MembershipTest(tf.test.TestCase):
    def test_saves_count_for_the_next_members(self):
        folder = self.get_temp_dir()
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(1)]
        self.assertIsNone(Checkpoint.newest_step(folder))
        membership = join_cluster(
            cluster_of(addresses, 0), folder, lambda: Checkpoint.newest_step(folder)
        )
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        x = np.ones([8, 2], np.float32)
        callback = Checkpoint(folder, 3, membership=membership)
        model.fit(x, x[:, :1], batch_size=2, epochs=2, verbose=0, callbacks=[callback])
        self.assertEqual(Checkpoint.newest_step(folder), 8)
        self.assertEqual(MembersFile(folder, 0, addresses).state(8), SavedState(1, 8))
        rule = "`num_copies` must be that of `join_cluster`. Received: num_copies=1"
        with self.assertRaisesRegex(ValueError, rule):
            Checkpoint(folder, num_copies=1, membership=membership)
        other = os.path.join(folder, "other")
        with self.assertRaisesRegex(ValueError, "`folder` must be that of `join_cluster`, .*other"):
            Checkpoint(other, membership=membership)

    def test_the_saved_step_is_told_when_workers_come_to_weights_that_are_not_finite(self):
        folder = self.get_temp_dir()
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(1)]
        membership = join_cluster(
            cluster_of(addresses, 0), folder, lambda: Checkpoint.newest_step(folder)
        )
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        spoil = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: (
                batch < 2 or model.weights[0].assign([[np.nan], [0.0]])
            )
        )
        callbacks = [spoil, Checkpoint(folder, 2, membership=membership)]
        found = contextlib.nullcontext(lambda: "worker 1")
        rule = "stopped at step 3, and step 2 is saved, to resume with worker 1"
        x = np.ones([8, 2], np.float32)
        with mock.patch.object(membership, "watch", lambda: found):
            with self.assertRaisesRegex(NewcomersError, rule):
                model.fit(x, x[:, :1], batch_size=1, verbose=0, callbacks=callbacks)


@pytest.mark.slow
class GivenUpTest(tf.test.TestCase):
    def test_later_steps_of_a_part_that_was_given_up_are_replaced(self):
        root = pathlib.Path(self.get_temp_dir())
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]

        def run(epochs):
            started = [
                processes.start(
                    pathlib.Path(elastic_worker.__file__),
                    addresses,
                    index,
                    [str(root / str(index)), f"--epochs={epochs}"],
                )
                for index in range(2)
            ]
            outputs = processes.outputs(started, timeout=200)
            self.assertEqual([process.returncode for process in started], [0, 0], outputs)
            return outputs

        run(2)
        # Worker 1 went on alone to step 500, and the next generation from step 20, without it.
        description, arrays, _ = files.read(files.path_of(root / "1", 20))
        position = dataclasses.replace(description.position, step=500, epoch=50)
        path = files.path_of(root / "1", 500)
        files.write(dataclasses.replace(description, path=path, position=position), arrays)
        files.path_of(root / "1", 20).write_bytes(b"damaged")
        record = root / "0" / ".members-0.json"
        content = json.loads(record.read_text())
        content["generation"]["number"] = content["saved"]["generation"] = 2
        record.write_text(json.dumps(content))
        outputs = run(4)
        self.assertIn("workers 0 and 1 of 2 train, as workers 0 and 1", outputs[1])
        for index in range(2):
            self.assertIn("epoch 3 of 2 workers", outputs[index])
            steps = [files.describe(path).position.step for path in files.find(root / str(index))]
            self.assertEqual(steps, [30, 40])


@pytest.mark.long
class ElasticCheckpointTest(elastic_program_cases.ElasticProgramCases):
    program = elastic_worker

    def test_a_worker_is_lost_and_comes_back(self):
        self.check_that_a_worker_is_lost_and_comes_back()

    def test_a_worker_is_told_to_end_and_comes_back(self):
        started = [self.start(worker) for worker in range(3)]
        self.wait_for(1, "epoch 2 of 3 workers")
        started[2].send_signal(signal.SIGTERM)
        self.assertEqual(started[2].wait(60), preemption.STATUS)
        self.wait_for(1, "workers 0 and 1 of 3 train")
        started[2] = self.start(2)
        for process in started:
            self.assertEqual(process.wait(200), 0, self.log(1))
        for worker in range(2):
            # The run was saved whenever it ended: no epoch is repeated, and none is missing.
            epochs = re.findall(r"^epoch (\d+) of", self.log(worker), re.MULTILINE)
            self.assertEqual(list(map(int, epochs)), list(range(1, elastic_worker.EPOCHS + 1)))
            self.assertIn("stopped by SIGTERM, and saved; restart 1 of 5", self.log(worker))
        self.assertIn(f"epoch {elastic_worker.EPOCHS} of 3 workers", self.log(2))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

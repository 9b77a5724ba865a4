"""States, sparse rows and accumulated gradients on two processes, as on one replica."""

import os
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.clients.comparison import ClientTest
from tests.clients.state import accumulation_cases, sparse_rows_cases, state_cases
from tests.distribute import processes

WORKER = pathlib.Path(__file__).with_name("state_worker.py")
# The last batch is shorter.
COUNTS = (21,)


@pytest.mark.slow
class StateClusterTest(ClientTest):
    def test_two_processes_with_two_replicas_each(self):
        plain = tf.distribute.get_strategy()
        folders = {name: os.path.join(self.get_temp_dir(), name) for name in ("folder", "single")}
        for folder in folders.values():
            os.makedirs(folder)
        for way in accumulation_cases.WAYS:
            accumulation_cases.stop(plain, way, folders["single"])
        jobs = {
            "states": {"counts": COUNTS},
            "rows": {},
            "accumulation": {"single": folders["single"]},
        }
        results = processes.run(WORKER, 2, folders["folder"], jobs=jobs)
        for index, result in enumerate(results):
            with self.subTest(worker=index):
                self.check_states(plain, result["states"])
                self.check_rows(plain, result["rows"])
                self.check_accumulation(plain, result["accumulation"])
        for name, value in results[0]["states"].items():
            self.assertAllEqual(value, results[1]["states"][name], name)
        for way in accumulation_cases.WAYS:
            got = accumulation_cases.go_on(plain, way, folders["folder"])
            self.assert_close(got, accumulation_cases.train(plain), way)

    def check_states(self, plain, got):
        for name, layer in state_cases.EQUAL.items():
            for count in COUNTS:
                for variable, value in state_cases.train(plain, layer, count).items():
                    key = f"{name}/{count}/{variable}"
                    self.assert_close(got[key], value, key)
        lengths = np.linalg.norm(got["first/Queue/queue"], axis=-1)
        self.assert_close(lengths[:6], np.ones(6), "lengths")
        half = got["first/HalfQueue/queue"]
        self.assertAllClose(half, got["first/Queue/queue"], atol=2e-3)
        self.assertEqual(got["first/Count/state"], 6)
        self.assertRegex(str(got["refused"]), "gets a value that differs between replicas")
        refused, weight = got["assigned"]
        self.assertRegex(
            refused, r"^A step assigned to the weight 'Variable\S*' values that differ"
        )
        self.assertNotIn("\n", refused)
        self.assertEqual(weight, "[2. 3.]")

    def check_rows(self, plain, got):
        for program in (
            sparse_rows_cases.dense_layer_of_sparse_inputs,
            sparse_rows_cases.weighted_means_of_embeddings,
            sparse_rows_cases.embeddings_of_positions_in_texts,
        ):
            for position, value in enumerate(keras.tree.flatten(program(plain))):
                key = f"{program.__name__}/{position}"
                self.assert_close(got[key], value, key)

    def check_accumulation(self, plain, got):
        expected = accumulation_cases.train(plain)
        sources = ("from", "from_single")
        ways = [f"{source}/{way}" for source in sources for way in accumulation_cases.WAYS]
        for name in ("train", *ways):
            for position, value in enumerate(expected):
                self.assert_close(got[f"{name}/{position}"], value, f"{name}/{position}")
        if "state/0" in got:
            for position, value in enumerate(accumulation_cases.optimizer_state(plain)):
                self.assert_close(got[f"state/{position}"], value, f"state/{position}")
        whole, *messages = got["warnings"]
        self.assertEqual(int(whole), 0)
        self.assertIn("are saved without those of the other processes", " ".join(messages))

    def assert_close(self, got, expected, message):
        self.assertAllClose(got, expected, rtol=1e-4, atol=1e-5, msg=message)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

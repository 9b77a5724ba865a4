"""Variables that only one process makes, and initial values, in real processes on loopback."""

import pathlib
import sys

import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy, broadcast_variables, equalize_variables
from tests import runs
from tests.distribute import processes

WORKER = pathlib.Path(__file__).with_name("one_host_worker.py")


@pytest.mark.long
class OneHostTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = runs.class_folder(cls)
        jobs = {"chief_writes": {}, "first_uses": {}}
        cls.results = processes.run(WORKER, 2, folder, num_local=2, jobs=jobs)

    def test_the_chief_alone_writes_before_while_and_after_training(self):
        first, second = [result["chief_writes"] for result in self.results]
        self.assertNotEqual(list(first["initial"]), list(second["initial"]))
        self.assertEqual(list(first["digests"]), list(second["digests"]))
        self.assertLen(set(first["digests"]), 2)

    def test_all_processes_hold_the_chiefs_initial_values_once_replicas_use_them(self):
        first, second = [dict(result["first_uses"]) for result in self.results]
        self.assertNotEqual(str(first.pop("own")), str(second.pop("own")))
        for way, result in first.items():
            self.assertEqual(str(result), str(second[way]), way)
        self.assertEqual(
            str(first["error"]),
            "the processes' variables differ: variable 0 is"
            ' "float32 (3,)" on worker 0 but "float32 (4,)" on worker 1',
        )

    def test_strings_cannot_be_sent(self):
        variables = [tf.Variable(1.0), tf.Variable("text", name="text")]
        for function in (broadcast_variables, equalize_variables):
            with self.assertRaisesRegex(ValueError, "`variables` must .* Received: text.* of str"):
                function(TernGradStrategy(1), variables)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

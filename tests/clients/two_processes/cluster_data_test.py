"""Two processes train with `fit` on data as users write them."""

import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import runs
from tests.clients.losses import masked_cases
from tests.clients.two_processes.cluster_data_cases import IDS, KINDS, train, use_single_batches
from tests.distribute import processes

WORKER = pathlib.Path(__file__).with_name("cluster_data_worker.py")


class ClusterTest(tf.test.TestCase):
    """Results of two processes."""

    JOBS = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = processes.run(WORKER, 2, runs.class_folder(cls), jobs=cls.JOBS)

    def both(self, job):
        """Returns the results of a job, which must be equal on both processes."""
        first, second = (result[job] for result in self.results)
        self.assertEqual(first.keys(), second.keys())
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], err_msg=f"{job}: {name}")
        return first

    def check_orders(self):
        for name, found in self.both("orders").items():
            unused = 4 if name == "validation_split" else 0
            expected = [3.0] * (20 - unused) + [0.0] * unused
            self.assertAllClose(found, expected, atol=1e-4, msg=name)

    def check_own(self):
        found = self.both("own")
        # Steps use two examples of each process; the last steps use two of the chief only.
        paired = np.repeat([1.0, 2.0, 1.0], [8, 4, 8])
        expected = {
            "more steps than data": 2 * paired,
            "infinite on one": np.repeat([1.0, 2.0, 1.0], [12, 4, 4]),
        }
        for name, values in found.items():
            if name in ("evaluated", "predicted"):
                # The first value comes from arrays that all processes share.
                self.assertAllClose(values[1:], [values[0]] * 2, msg=name)
            else:
                self.assertAllClose(values, expected.get(name, paired), msg=name)


class ClusterDataTest(ClusterTest):
    JOBS = {
        "draws": {},
        "orders": {"only": ["arrays", "a shuffled data set", "a PyDataset after a drift"]},
        "own": {"only": ["a generator", "policy"]},
        "kept": {},
        "refused": {},
        "single_batches": {},
    }

    def test_unseeded_generators_draw_alike(self):
        self.assertLen(self.both("draws"), 4)

    def test_every_example_is_used_once_in_every_epoch(self):
        self.check_orders()

    def test_all_examples_of_each_process_are_used_and_epochs_end_together(self):
        self.check_own()

    def test_arrays_of_which_batches_are_views_do_not_change(self):
        self.assertEqual(self.both("kept"), {"evaluate": 0, "fit": 0})

    def test_single_batches_consist_of_the_parts_that_processes_pass(self):
        expected = use_single_batches(tf.distribute.get_strategy(), IDS)
        found = [result["single_batches"] for result in self.results]
        predictions = expected.pop("predictions")
        self.assertAllClose(np.concatenate([f.pop("predictions") for f in found]), predictions)
        for of_process in found:
            self.assertAllClose(of_process, expected)

    def test_different_data_are_refused_in_one_line_that_says_what_to_write(self):
        found = {name: str(text) for name, text in self.both("refused").items()}
        lines = {
            "arrays": r"^worker 1 reads other examples than worker 0 \(arrays\): give .*OFF$",
            "data set": r"^worker 1 reads other .* \(tf.data.Dataset .*\): set .*OFF .* DATA",
            "peeked": r"^worker 1 began to read its .* at other times than worker 0,",
            "seeds": r"^worker 1 shuffles its .* by other seeds than worker 0: make the same",
            "lengths": r"must be of one length\. Received: batches: 5 on worker 0, 4 on worker 1",
            "policy": r"^the processes read .*Policy.AUTO on worker 0 but .*OFF on worker 1",
            "kinds": r"^the processes read different data: tf.data.Dataset .* but arrays on",
        }
        same = {name: lines["arrays"] for name in ("fewer", "evaluate", "predict")}
        lines |= same | {"by rank": lines["data set"]}
        self.assertEqual(found.keys(), lines.keys())
        for name, line in lines.items():
            self.assertRegex(found[name], line)
            self.assertNotIn("\n", found[name])


@pytest.mark.long
class MoreClusterDataTest(ClusterTest):
    JOBS = {"orders": {}, "own": {}}

    def test_every_example_is_used_once_in_every_epoch(self):
        self.check_orders()

    def test_all_examples_of_each_process_are_used_and_epochs_end_together(self):
        self.check_own()


@pytest.mark.slow
class NumbersOfKerasTest(ClusterTest):
    JOBS = {"seeded": {}, "masked": {}}

    def test_seeded_training_equals_keras_in_one_process(self):
        found = self.both("seeded")
        for kind in KINDS:
            for name, value in train(tf.distribute.get_strategy(), kind).items():
                message = f"{kind}: {name}"
                got = found.pop(f"{kind}/{name}")
                np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-4, err_msg=message)
        self.assertEmpty(found)

    def test_losses_with_masks_are_those_of_the_whole_batch(self):
        found = self.both("masked")
        for kind in masked_cases.KINDS:
            expected = masked_cases.train(tf.distribute.get_strategy(), kind)
            for number, value in enumerate(keras.tree.flatten(expected)):
                name = f"{kind}/{number}"
                self.assertAllClose(found[name], value, rtol=1e-4, atol=1e-5, msg=name)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

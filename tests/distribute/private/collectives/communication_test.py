"""Tests of clusters whose processes exchange through the memory of their hosts."""

import sys

import pytest
import tensorflow as tf

from terngrad_tf.distribute import ClusterOptions, TernGradStrategy
from tests import runs
from tests.distribute.private.collectives import communication_cases


@pytest.mark.slow
class HostsTest(communication_cases.ClusterCase):
    # A logical CPU replaces a GPU; the other process has none.
    places = ("CPU:1", "CPU:0")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.start(runs.class_folder(cls))

    def test_replicas_are_on_the_requested_devices(self):
        self.check_places()

    def test_sums_are_those_of_one_process_to_the_bit(self):
        self.check_sums()

    def test_trainings_are_those_of_one_process(self):
        self.check_equal()
        self.check_float_training(1e-5, 1e-6)


class ArgumentTest(tf.test.TestCase):
    def test_an_unknown_way_is_refused(self):
        with self.assertRaisesRegex(ValueError, "`communication` must be one of .* 'ring'.*'gloo'"):
            TernGradStrategy(cluster_options=ClusterOptions(communication="gloo"))

    def test_nccl_is_refused_without_gpus(self):
        with self.assertRaisesRegex(ValueError, "`communication` must be 'ring' or 'auto'"):
            TernGradStrategy(num_gpus=0, cluster_options=ClusterOptions(communication="nccl"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

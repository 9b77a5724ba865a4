"""Tests of the placement of replicas, and of buckets."""

import subprocess
import sys

import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy, local_devices
from terngrad_tf.distribute.exchange import buckets


class VirtualDevicesTest(tf.test.TestCase):
    def test_replicas_share_the_cpu_without_a_gpu(self):
        self.assertEqual(local_devices(2), ["/device:CPU:0"] * 2)
        self.assertEqual(local_devices(), ["/device:CPU:0"])
        self.assertLen(local_devices(3, num_gpus=0), 3)
        strategy = TernGradStrategy(3)
        self.assertEqual(strategy.num_replicas_in_sync, 3)
        self.assertTrue(strategy.is_chief)
        self.assertEqual((strategy.num_processes, strategy.process_index), (1, 0))
        self.assertIsNone(strategy.traffic)

    def test_bad_numbers_are_one_clear_error(self):
        for bad in (0, -1, 1.5, True, "4"):
            with self.assertRaisesRegex(ValueError, "`num_nodes` must be a positive integer"):
                TernGradStrategy(bad)
        with self.assertRaisesRegex(ValueError, "`num_gpus` must be an integer, 0 or more"):
            TernGradStrategy(num_gpus=-1)
        for arguments in ({"num_gpus": 4}, {"num_gpus": 4, "num_nodes": 4}, {"num_gpus": 1}):
            with self.assertRaisesRegex(ValueError, "`num_gpus` must be at most 0, the GPUs that"):
                TernGradStrategy(**arguments)

    @pytest.mark.slow
    def test_tensorflow_may_have_started_before(self):
        program = (
            "import tensorflow as tf; tf.zeros([1]);"
            "from terngrad_tf.distribute import TernGradStrategy;"
            "print(TernGradStrategy(2).num_replicas_in_sync)"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(run.stdout.strip(), "2", run.stderr)

    def test_buckets_go_from_the_last_tensor_to_the_first_and_hold_each_once(self):
        self.assertEqual(buckets.buckets([5, 5, 5], bucket_elements=10), [[2, 1], [0]])
        self.assertEqual(buckets.buckets([50, 1], bucket_elements=10), [[1, 0]])
        self.assertEqual(buckets.buckets([], bucket_elements=10), [])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

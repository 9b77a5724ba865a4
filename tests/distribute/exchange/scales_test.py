"""Tests of the exchange of scales."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf import ternary
from terngrad_tf.distribute import Quantization
from terngrad_tf.distribute.exchange import buckets, traffic
from terngrad_tf.distribute.exchange.scales import share_scales
from tests.distribute.exchange.thread_processes import in_threads

FEW, MANY = 100, 5001


def own_scales(num_replicas, count):
    """Scales of each replica, including 0 and infinity."""
    scales = np.exp(np.random.default_rng(0).standard_normal([num_replicas, count]))
    scales[:, 0], scales[0, 1], scales[:, 2] = 0, np.inf, np.inf
    return scales.astype(np.float32)


class ShareScalesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        cluster=[(1, 1), (2, 1), (3, 1), (4, 1), (5, 2)],
        count=[0, FEW, MANY],
        rotate=[True, False],
        told=[None, [0.0, -1.0]],
    )
    def test_all_processes_get_the_largest_scales_and_the_noise(self, cluster, count, rotate, told):
        num_processes, num_local = cluster
        num_replicas = num_processes * num_local
        quantization, own = Quantization(rotate=rotate), own_scales(num_replicas, max(count, 3))
        own = own[:, :count]

        def share(processes):
            context = buckets.ReductionContext(["CPU:0"] * num_local, num_replicas, processes)
            first = processes.rank * num_local
            scales = list(tf.constant(own[first : first + num_local]))
            says = None if told is None else tf.constant(told) + processes.rank
            return share_scales(context, quantization, scales, says), processes.received

        for shared, received in in_threads(num_processes, share):
            self.assertAllEqual(shared.largest, own.max(0))
            self.assertEqual(shared.noise is not None, rotate)
            self.assertEqual(shared.told is not None, told is not None)
            if rotate:
                # The largest scale of a process stands for all its replicas.
                of_members = own.reshape(num_processes, num_local, count).max(1)
                largest = np.minimum(own.max(0), 2.0**56)
                how = {"levels": 1, "rounding": "correlated"}
                expected = ternary.noise_of_sums(largest, of_members, num_replicas, **how)
                self.assertAllEqual(shared.noise, expected)
            if told is not None:
                self.assertAllEqual(shared.told, np.add(told, num_processes - 1))
            else:
                self.assertEqual(received, traffic.scale_bytes(count, num_processes, rotate))

    def test_many_scales_of_many_members_take_three_numbers_each(self):
        few = traffic.scale_bytes(FEW, 64, with_noise=True)
        many = traffic.scale_bytes(64 * MANY, 64, with_noise=True)
        self.assertEqual((few, many), (4 * 63 * FEW, 4 * 63 * 3 * MANY))

    def test_a_single_process_knows_the_scales_of_all_replicas(self):
        own = tf.constant([[1.0, 2.0], [0.5, 2.0], [0.25, 1.0]])
        context = buckets.ReductionContext(["CPU:0"] * 3, 3, None)
        shared = share_scales(context, Quantization(rounding="independent"), list(own))
        terms = [[1, 1 / 2, 1 / 4], [1, 1, 1 / 2]]
        noise = [sum(ternary.rounding_noise(1, 3, "independent", q) for q in row) for row in terms]
        self.assertAllClose(shared.noise, noise, rtol=2e-3)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Tests of traffic between workers and parameter servers, and of the placement of variables.

`rotated_pushes_test.py` tests pushes of rotated gradients.
"""

import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf import ternary
from terngrad_tf.distribute import Quantization, cluster_from_hosts
from terngrad_tf.parameter_server.codec import PUSH_WIRES, PushCodec
from terngrad_tf.parameter_server.process import cluster_tasks
from terngrad_tf.parameter_server.variables import place

SHAPES = [[70, 30], [5], [40], []]


def gradients_of(seed):
    generator = np.random.default_rng(seed)
    return [tf.constant(generator.normal(size=shape), tf.float32) for shape in SHAPES]


def codec(ternary_positions, wire="auto", **options):
    quantization = Quantization(rotate=False, seed=9, **options)
    return PushCodec(SHAPES, ternary_positions, [4, 5, 6, 7], quantization, 3, wire)


class ParameterServerTest(tf.test.TestCase):
    @settings(deadline=None, max_examples=6, derandomize=True)
    @given(st.integers(0, 2**32), st.integers(0, 2), st.sets(st.integers(0, 3)))
    def test_ternary_gradients_arrive_as_scale_times_code_and_others_unchanged(
        self, step, worker, positions
    ):
        gradients = gradients_of(step)
        push = codec(sorted(positions), rounding="independent")
        packed = push.encode(gradients, tf.constant(step, tf.int64), tf.constant(worker))
        arrived = push.decode(packed)
        for i, (gradient, found) in enumerate(zip(gradients, arrived, strict=True)):
            want = gradient
            if i in positions:
                scale = ternary.local_scales([gradient], 2.5)[0]
                codes = ternary.ternarize(
                    gradient,
                    scale,
                    seed=9,
                    step=step,
                    tensor=4 + i,
                    replica=worker,
                    num_replicas=3,
                    rounding="independent",
                )
                want = scale * tf.cast(codes, tf.float32)
            # Two graphs may sum a tensor in different orders.
            np.testing.assert_allclose(found, want, rtol=1e-5)
        travelling = sum(4 * int(tf.size(tensor)) for tensor in tf.nest.flatten(packed))
        self.assertEqual(push.num_bytes, travelling)

    @pytest.mark.slow
    def test_streams_bring_the_same_bits_in_fewer_bytes(self):
        gradients = gradients_of(3)
        gradients[0] *= np.random.default_rng(3).random(SHAPES[0]) < 0.02
        arrived, num_bytes = [], []
        for wire in PUSH_WIRES:
            push = codec([0, 2], wire)
            packed = push.encode(gradients, tf.constant(5, tf.int64), tf.constant(1))
            arrived.append(push.decode(packed))
            travelling = sum(4 * int(tf.size(tensor)) for tensor in tf.nest.flatten(packed))
            self.assertEqual(int(push.num_bytes_of(packed)), travelling)
            num_bytes.append(travelling)
        for words, streams in zip(*arrived, strict=True):
            np.testing.assert_array_equal(words, streams)
        self.assertLess(num_bytes[1], num_bytes[0])
        with self.assertRaisesRegex(ValueError, "`wire` must be one of .*: wire='alltoall'"):
            codec([0], "alltoall")

    def test_finer_codes_take_more_words_and_no_streams(self):
        gradients = gradients_of(3)
        push = codec(range(4), grad_bits=4, clip_factor=0)
        packed = push.encode(gradients, tf.constant(5, tf.int64), tf.constant(1))
        travelling = sum(4 * int(tf.size(tensor)) for tensor in tf.nest.flatten(packed))
        self.assertEqual(push.num_bytes, travelling)
        self.assertEqual(packed[0].shape, [-(-2100 // 8) + 1 + 5 + 1])
        for gradient, found in zip(gradients, push.decode(packed), strict=True):
            step = np.abs(gradient).max() / 7
            self.assertAllClose(found, gradient, rtol=0, atol=step * (1 + 1e-5))
        with self.assertRaisesRegex(ValueError, "`wire` must be 'auto' with grad_bits=4.*sparse"):
            codec([0], "sparse", grad_bits=4)

    @pytest.mark.slow
    def test_pushes_are_unbiased_without_clipping(self):
        gradients, push = gradients_of(1), codec(range(4), clip_factor=0.0)
        once = tf.function(lambda step: push.decode(push.encode(gradients, step, 1)))
        count = 300
        sums = [0.0] * len(SHAPES)
        for step in tf.range(count, dtype=tf.int64):
            sums = [total + found for total, found in zip(sums, once(step), strict=True)]
        for gradient, total in zip(gradients, sums, strict=True):
            # The deviation of a mean is at most half the scale over the root of the count.
            bound = 5 * 0.5 * np.abs(gradient).max() / np.sqrt(count)
            self.assertAllClose(gradient, total / count, rtol=0, atol=bound + 1e-6)

    def test_a_gradient_that_is_not_finite_arrives_as_nan(self):
        gradients = gradients_of(2)
        gradients[0] *= float("inf")
        push = codec(range(4))
        arrived = push.decode(push.encode(gradients, 0, 0))
        self.assertAllEqual(np.isnan(arrived[0]), np.ones(SHAPES[0], bool))
        self.assertTrue(np.isfinite(arrived[1]).all())

    @settings(deadline=None, max_examples=50, derandomize=True)
    @given(st.lists(st.integers(1, 1000), min_size=1), st.integers(1, 5))
    def test_servers_hold_each_variable_once_and_nearly_equal_amounts(self, sizes, count):
        placed = place(sizes, count)
        self.assertAllEqual(sorted(sum(placed, [])), range(len(sizes)))
        self.assertLen(placed, min(count, len(sizes)))
        totals = [sum(sizes[i] for i in found) for found in placed]
        if len(sizes) >= count:
            self.assertLessEqual(max(totals) - min(totals), max(sizes))

    def test_processes_are_named_workers_first(self):
        tasks = cluster_tasks(
            cluster_from_hosts(worker_hosts="a:1,b:1", ps_hosts="c:1", job_name="ps")
        )
        self.assertEqual(tasks.names, ("worker 0", "worker 1", "ps 0"))
        self.assertEqual(tasks.addresses, ("a:1", "b:1", "c:1"))
        self.assertEqual(tasks.index, 2)

    def test_a_cluster_without_parameter_servers_is_refused(self):
        with self.assertRaisesRegex(ValueError, "`ps_hosts` must name a process .*: none"):
            cluster_tasks(cluster_from_hosts(worker_hosts="a:1"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Tests of the wires: their bytes, and their results for gradients by the paper's rule.

`rotated_test.py` tests rotated gradients.
"""

import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.distribute import Quantization
from terngrad_tf.distribute.exchange import buckets, wires
from terngrad_tf.distribute.exchange.traffic import float_traffic
from terngrad_tf.distribute.exchange.wires import registry, streams
from terngrad_tf.distribute.exchange.wires.sparse import Sparse
from terngrad_tf.distribute.exchange.wires.sparse_sums import SparseSums
from tests.distribute.exchange.thread_processes import in_threads
from tests.distribute.samples import SHAPES, gradients_of

FOUR_MEGA = (4 * 2**20,)
# Wires in the default tests.
QUICK = ("allgather", "sparse_bidirectional")


def bucket_of(context, quantization, gradients, indices=None):
    bucket = buckets.Bucket(
        context=context,
        quantization=quantization,
        gradients=gradients,
        measured=[quantization.local_scales(g) for g in gradients],
        indices=indices or range(len(SHAPES)),
        step=tf.constant(3),
    )
    return bucket.with_shared_scales()


def reduce_in_threads(wire, num_processes, num_local, quantization):
    """The sums of all replicas' gradients on each process, and the words it received."""

    def reduce(processes):
        context = buckets.ReductionContext(
            ["CPU:0"] * num_local, num_processes * num_local, processes
        )
        first = processes.rank * num_local
        gradients = [
            [tf.constant(g) for g in gradients_of(replica)]
            for replica in range(first, first + num_local)
        ]
        results, received, _ = buckets.reduce_bucket(
            bucket_of(context, quantization, gradients), wire
        )
        return [local[0].numpy() for local in results], float(received)

    return in_threads(num_processes, reduce)


class WiresTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*QUICK, *(wire for wire in wires.WIRES if wire not in QUICK))
    @pytest.mark.default_cases(len(QUICK))
    def test_all_processes_get_the_sum_of_the_replicas_codes(self, wire):
        self.check_sums(wire)

    @pytest.mark.slow
    def test_finer_codes_take_words_both_ways(self):
        for wire in ("alltoall", "bidirectional"):
            self.check_sums(
                wire, quantization=Quantization(rotate=False, seed=4, grad_bits=4, clip_factor=0)
            )

    def test_sums_are_rounded_once_more_without_bias_if_nothing_is_clipped(self):
        self.check_sums(
            "bidirectional", quantization=Quantization(rotate=False, seed=4, clip_factor=0)
        )

    def test_buckets_round_sums_by_random_bits_of_their_own(self):
        context = buckets.ReductionContext(["CPU:0"] * 2, 2, None)
        quantization = Quantization(rotate=False, clip_factor=0)
        # Codes are certain, and half of a sum is rounded up.
        gradients = [[tf.ones([2000])], [tf.zeros([2000])]]
        sums = []
        for index in range(2):
            bucket = bucket_of(context, quantization, gradients, [index])
            ((found, _),), *_ = buckets.reduce_bucket(bucket, "sparse_bidirectional")
            sums.append(found.numpy())
        self.assertBetween(np.mean(sums[0] == sums[1]), 0.4, 0.6)

    @parameterized.parameters("allgather", "allreduce", "auto")
    @pytest.mark.long
    def test_finer_codes_take_the_other_wires_of_words(self, wire):
        self.check_sums(wire, quantization=Quantization(rotate=False, seed=4, grad_bits=3))

    @pytest.mark.long
    def test_sums_of_many_members_travel_in_streams(self):
        kinds = [type(wires.choose("sparse", FOUR_MEGA, num, 1)) for num in (2, 4)]
        self.assertEqual(kinds, [Sparse, SparseSums])
        with mock.patch.dict(registry._CLASSES, {"sparse": (SparseSums,)}):
            self.check_sums("sparse")
            received = self.check_sums("sparse", num_processes=4, num_local=1)
            # One process reports what its replicas would receive if each were a process.
            self.assertEqual(received, self.received_in_one_process("sparse", 4))

    @pytest.mark.long
    def test_one_process_reports_what_several_receive(self):
        for wire in ("sparse", "sparse_bidirectional"):
            received = self.check_sums(wire, num_processes=2, num_local=1)
            self.assertEqual(received, self.received_in_one_process(wire, 2))

    def received_in_one_process(self, wire, num_replicas):
        """Words that a replica of one process would receive if it were a process."""
        context = buckets.ReductionContext(["CPU:0"] * num_replicas, num_replicas, None)
        gradients = [[tf.constant(g) for g in gradients_of(k)] for k in range(num_replicas)]
        bucket = bucket_of(context, Quantization(rotate=False, seed=4), gradients)
        return float(buckets.reduce_bucket(bucket, wire)[1])

    def check_sums(self, wire, num_processes=3, num_local=2, quantization=None):
        """Checks that the wire gives each process the sum of all codes, or a rounded sum.

        Returns the words that each process received.
        """
        quantization = quantization or Quantization(rotate=False, seed=4)
        levels = quantization.levels
        gradients = [gradients_of(replica) for replica in range(num_processes * num_local)]
        scales = tf.reduce_max([quantization.local_scales(g) for g in gradients], axis=0)
        codes = quantization.sum_codes(
            [[tf.constant(g) for g in local] for local in gradients],
            scales,
            step=3,
            replicas=range(len(gradients)),
            num_replicas=len(gradients),
        )
        results = reduce_in_threads(wire, num_processes, num_local, quantization)
        results, received = zip(*results, strict=True)
        self.assertLen(set(received), 1)
        for found in results:
            for got, first, scale, code in zip(found, results[0], scales, codes, strict=True):
                np.testing.assert_array_equal(got, first)
                if wire == "bidirectional":
                    unbiased = quantization.clip_factor == 0
                    sums = np.array(got * np.float32(levels) / scale)
                    self.check_rounded_sums(sums, code, num_processes, levels, unbiased)
                elif wire not in (*wires.LOSSLESS, "auto"):
                    whole = len(gradients) * scale
                    units = levels * got / whole
                    np.testing.assert_allclose(units, np.round(units), atol=1e-4)
                    self.assertAllInRange(np.round(units), -levels, levels)
                    # One more rounding, without bias: 5 standard errors.
                    bound = 5 * float(whole) / levels / np.sqrt(got.size)
                    mean = tf.reduce_mean(tf.cast(code, tf.float32)) * scale / levels
                    self.assertNear(got.mean(), float(mean), bound)
                else:
                    unit = quantization.units(scale)
                    np.testing.assert_array_equal(got, unit * tf.cast(code, tf.float32))
        return received[0]

    def check_rounded_sums(self, sums, exact, num_owners, levels, unbiased):
        """Checks that sums are whole numbers of steps; each owner has its own step size."""
        largest = np.abs(exact).max()
        self.assertAllInRange(sums, -largest * (1 + 1e-6), largest * (1 + 1e-6))
        steps = np.unique(np.round(np.abs(sums), 4))
        self.assertLessEqual(len(steps), 1 + num_owners * levels)
        if unbiased:
            # 5 standard errors, with one random step per element.
            bound = 5 * largest / levels / 2 / np.sqrt(sums.size)
            self.assertNear(sums.mean(), np.mean(exact), bound + 1e-6)

    @parameterized.parameters((2, 19.5), (4, 13.0), (8, 10.0))
    def test_lossless_ratios_reach_the_goal(self, num_processes, ratio):
        traffic = wires.choose("auto", FOUR_MEGA, num_processes, 1).traffic
        self.assertIn(traffic.wire, wires.LOSSLESS)
        self.assertGreaterEqual(traffic.compression_ratio, ratio)

    @parameterized.parameters((3, 2, 10.9), (4, 2, 7.9), (4, 4, 6.1), (8, 2, 3.9))
    def test_finer_codes_take_more_bytes(self, bits, num_processes, ratio):
        levels = Quantization(grad_bits=bits).levels
        traffic = wires.choose("auto", FOUR_MEGA, num_processes, 1, levels).traffic
        self.assertBetween(traffic.compression_ratio, ratio, 1.03 * ratio)

    @parameterized.parameters(2, 4, 8, 64, 512)
    def test_bidirectional_is_twenty_times_smaller_for_any_number_of_processes(self, num_processes):
        traffic = wires.choose("bidirectional", FOUR_MEGA, num_processes, 1).traffic
        self.assertBetween(traffic.compression_ratio, 19.5, 20.01)

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=5),
        num_processes=st.integers(1, 40),
        num_local=st.integers(1, 9),
    )
    def test_auto_is_the_cheapest_lossless_wire(self, sizes, num_processes, num_local):
        chosen = wires.choose("auto", sizes, num_processes, num_local)
        lossless = [wires.choose(w, sizes, num_processes, num_local) for w in wires.LOSSLESS]
        self.assertEqual(chosen.received_words, min(wire.received_words for wire in lossless))

    @parameterized.parameters(*wires.WIRES)
    def test_one_replica_exchanges_nothing(self, wire):
        traffic = wires.choose(wire, (100,), 1, 1).traffic
        self.assertEqual(traffic.received_bytes, 0)
        self.assertEqual(traffic.compression_ratio, 1.0)

    @pytest.mark.slow
    def test_messages_of_streams_have_few_lengths(self):
        lengths = range(1, 5000)
        found = [int(streams.message_length(tf.constant([[n, 0], [1, 0]]))) for n in lengths]
        for length, message in zip(lengths, found, strict=True):
            self.assertBetween(message, length, length * 33 / 32)
        # There are 32 lengths per octave.
        self.assertLessEqual(len(set(found)), 64 + 32 * 7)
        two = tf.constant([[3, 4], [5, 1]])
        self.assertEqual(int(streams.message_length(two)), 7)

    def test_traffic_of_buckets_adds_up(self):
        total = float_traffic(40, 2) + wires.choose("allreduce", (100,), 2, 1).traffic
        self.assertEqual(total.wire, "allreduce")
        self.assertEqual(total.float32_bytes, 4 * 110)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

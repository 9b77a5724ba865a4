"""Compares TernaryAllReduce by the paper's rule with a reduction written out step by step.

`rotated_test.py` tests rotated gradients.
"""

import dataclasses
import inspect
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf import ternary
from terngrad_tf.distribute import WIRES, Quantization, TernaryAllReduce, TernGradStrategy
from terngrad_tf.distribute.exchange.options import ExchangeOptions
from tests.distribute import strategy_options
from tests.distribute.samples import SHAPES, gradients_of, reduce_once

NUM_REPLICAS = 4


def expected_sums(gradients, clip_factor, rounding, seed=0, step=0, levels=1):
    """The paper's rule, tensor by tensor and replica by replica."""
    sums = []
    for index, per_replica in enumerate(zip(*gradients, strict=True)):
        scale = max(
            ternary.local_scales([tf.constant(g)], clip_factor)[0].numpy() for g in per_replica
        )
        codes = [
            ternary.ternarize(
                tf.constant(g),
                tf.constant(scale),
                seed=seed,
                step=step,
                tensor=index,
                replica=replica,
                num_replicas=len(per_replica),
                rounding=rounding,
                levels=levels,
            ).numpy()
            for replica, g in enumerate(per_replica)
        ]
        unit = np.float32(scale) * np.float32(1 / levels)
        sums.append(unit * np.sum(codes, axis=0).astype(np.float32))
    return sums


def table_under(strategy):
    """A table of ten rows of zeros, and SGD with rate 1 built for it."""
    with strategy.scope():
        table = keras.Variable(tf.zeros([10, 2]), name="table")
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build([table])
    return table, optimizer


class TernaryAllReduceTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.gradients = [gradients_of(replica) for replica in range(NUM_REPLICAS)]

    def assert_is_float_sum(self, got, per_replica):
        # Three roundings of sums below 32, in any order.
        np.testing.assert_allclose(
            got, np.sum(per_replica, axis=0, dtype=np.float64), rtol=0, atol=3 * 2.0**-20
        )

    @parameterized.product(rounding=ternary.ROUNDINGS, clip_factor=(0.0, 2.5))
    def test_one_process_sums_the_replicas_ternary_gradients(self, rounding, clip_factor):
        expected = expected_sums(self.gradients, clip_factor, rounding, seed=7)
        strategy = TernGradStrategy(
            NUM_REPLICAS,
            quantization=Quantization(
                rotate=False, clip_factor=clip_factor, rounding=rounding, seed=7
            ),
        )
        for got, want in zip(reduce_once(strategy, self.gradients), expected, strict=True):
            np.testing.assert_array_equal(got, want)

    @pytest.mark.slow
    def test_more_bits_are_finer_codes_nearer_to_the_float_sum(self):
        floats = [np.sum(of_tensor, axis=0) for of_tensor in zip(*self.gradients, strict=True)]
        errors = []
        for bits, levels in ((1, 1), (3, 3), (4, 7), (8, 127)):
            got = reduce_once(
                TernGradStrategy(
                    NUM_REPLICAS,
                    quantization=Quantization(rotate=False, grad_bits=bits, clip_factor=0, seed=7),
                ),
                self.gradients,
            )
            want = expected_sums(self.gradients, 0.0, "correlated", seed=7, levels=levels)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)
            errors.append(np.sqrt(np.mean((got[3] - floats[3]) ** 2)))
        # Rounding deviates by at most half a step.
        self.assertAllInRange(np.array(errors[1:]) * [3, 7, 127] / errors[0], 0.4, 1.2)

    def test_stock_mirrored_strategy_gives_the_same(self):
        strategy = tf.distribute.MirroredStrategy(
            [f"CPU:{i}" for i in range(NUM_REPLICAS)],
            cross_device_ops=TernaryAllReduce(quantization=Quantization(rotate=False, seed=3)),
        )
        expected = expected_sums(self.gradients, 2.5, "correlated", seed=3)
        for got, want in zip(reduce_once(strategy, self.gradients), expected, strict=True):
            np.testing.assert_array_equal(got, want)

    def test_one_replica_rounds(self):
        expected = expected_sums(self.gradients[:1], 2.5, "correlated")
        got = reduce_once(
            TernGradStrategy(1, quantization=Quantization(rotate=False)), self.gradients[:1]
        )
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.slow
    def test_bidirectional_streams_are_ternary_and_unbiased(self):
        got = self.sums_of_quarters("sparse_bidirectional")
        self.assertContainsSubset(set(np.unique(got)), {-4.0, 0.0, 4.0})
        # Correlated rounding of 1/4 gives a sum of exactly 1; the second hop keeps it in the mean.
        # A Bernoulli(1/4) of size 4 over 4000 elements: 5 standard errors are 0.14.
        self.assertNear(got[:-1].mean(), 1.0, 0.14)
        self.assertEqual(got[-1], 4.0)

    @pytest.mark.slow
    def test_bidirectional_rounds_sums_by_the_largest_of_a_chunk(self):
        got = self.sums_of_quarters("bidirectional")
        # The largest sum is 4 in one owner's chunk and 1 in the other three, whose sums stay exact.
        self.assertContainsSubset(set(np.unique(got)), {0.0, 1.0, 4.0})
        self.assertGreater(np.mean(got == 1.0), 0.7)
        self.assertNear(got[:-1].mean(), 1.0, 0.07)
        self.assertEqual(got[-1], 4.0)

    def sums_of_quarters(self, wire):
        """The sum over four replicas of 4,000 elements of 1/4 and one of 1; the scale is 1."""
        strategy = TernGradStrategy(
            NUM_REPLICAS, wire=wire, quantization=Quantization(rotate=False, clip_factor=0.0)
        )
        gradient = np.append(np.full([4000], 0.25), 1.0).astype(np.float32)
        (got,) = reduce_once(strategy, [[gradient]] * NUM_REPLICAS)
        return got

    def test_float_mode_is_the_plain_sum(self):
        strategy = TernGradStrategy(NUM_REPLICAS, grad_bits=32)
        for got, per_replica in zip(
            reduce_once(strategy, self.gradients), zip(*self.gradients, strict=True), strict=True
        ):
            self.assert_is_float_sum(got, per_replica)
        self.assertEqual(strategy.traffic.wire, "float32")
        self.assertEqual(strategy.traffic.compression_ratio, 1.0)

    def test_small_tensors_stay_float(self):
        strategy = TernGradStrategy(
            NUM_REPLICAS, quantization=Quantization(rotate=False, min_size=360)
        )
        got = reduce_once(strategy, self.gradients)
        ternary_sums = expected_sums(self.gradients, 2.5, "correlated")
        for index, size in enumerate(int(np.prod(s)) for s in SHAPES):
            if size < 360:
                self.assert_is_float_sum(got[index], [g[index] for g in self.gradients])
            else:
                self.assertAllEqual(got[index], ternary_sums[index])

    def test_logits_stay_float_by_their_name(self):
        strategy = TernGradStrategy(
            NUM_REPLICAS, quantization=Quantization(rotate=False, quantize_logits=False)
        )
        names = ["kernel", "my_logits_kernel", "bias", "aux_logits_kernel"]
        got = reduce_once(strategy, self.gradients, names)
        self.assert_is_float_sum(got[1], [g[1] for g in self.gradients])
        # An auxiliary head is not the last layer: it is rounded, as in TernGrad's code.
        ternary_sums = expected_sums(self.gradients, 2.5, "correlated")
        for index in (0, 2, 3):
            self.assertAllEqual(got[index], ternary_sums[index])

    def test_no_logits_to_leave_out_is_an_error(self):
        strategy = TernGradStrategy(NUM_REPLICAS, quantization=Quantization(quantize_logits=False))
        with self.assertRaisesRegex(ValueError, "quantize_logits=False.*name contains 'logits'"):
            reduce_once(strategy, self.gradients)

    def test_a_nan_on_one_replica_reaches_all(self):
        for bad in (np.nan, np.inf):
            self.gradients[2][1][5] = bad
            got = reduce_once(
                TernGradStrategy(NUM_REPLICAS, quantization=Quantization(rotate=False)),
                self.gradients,
            )
            self.assertTrue(np.isnan(got[1]).all())
            self.assertTrue(np.isfinite(got[3]).all())

    def test_steps_and_seeds_change_the_rounding(self):
        strategy = TernGradStrategy(NUM_REPLICAS, quantization=Quantization(rotate=False))
        first = reduce_once(strategy, self.gradients)[3]
        again = reduce_once(
            TernGradStrategy(NUM_REPLICAS, quantization=Quantization(rotate=False)), self.gradients
        )[3]
        seeded = TernGradStrategy(NUM_REPLICAS, quantization=Quantization(rotate=False, seed=1))
        seeded = reduce_once(seeded, self.gradients)[3]
        with strategy.scope():
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.iterations.assign(41)
        later = reduce_once(strategy, self.gradients, optimizer=optimizer)[3]
        self.assertAllEqual(first, again)
        self.assertNotAllEqual(first, seeded)
        self.assertNotAllEqual(first, later)
        self.assertAllEqual(later, expected_sums(self.gradients, 2.5, "correlated", step=41)[3])

    def test_half_precision_gradients_keep_their_type(self):
        half = [[g.astype(np.float16) for g in replica] for replica in self.gradients]
        strategy = TernGradStrategy(NUM_REPLICAS, quantization=Quantization(rotate=False))
        got = reduce_once(strategy, half)
        expected = expected_sums(half, 2.5, "correlated")
        for a, b in zip(got, expected, strict=True):
            self.assertAllClose(a, b.astype(np.float16).astype(np.float32))

    @pytest.mark.slow
    def test_half_precision_gradients_count_two_bytes_an_element(self):
        counted = {}
        for dtype in (np.float32, np.float16):
            gradients = [[g.astype(dtype) for g in replica] for replica in self.gradients]
            for bits in (1, 32):
                strategy = TernGradStrategy(NUM_REPLICAS, grad_bits=bits)
                reduce_once(strategy, gradients)
                counted[dtype, bits] = strategy.traffic
        num_elements = sum(g.size for g in self.gradients[0])
        size = round(2 * (NUM_REPLICAS - 1) / NUM_REPLICAS * 2 * num_elements)
        for bits in (1, 32):
            half, single = counted[np.float16, bits], counted[np.float32, bits]
            self.assertEqual((half.float32_bytes, single.float32_bytes), (size, 2 * size))
        self.assertEqual(half.received_bytes, size)
        self.assertEqual(single.received_bytes, 2 * size)
        self.assertEqual(half.compression_ratio, 1.0)

    def test_bad_options_name_the_argument_the_rule_and_the_value(self):
        for options, message in (
            ({"grad_bits": 9}, "`grad_bits` must be 1 .* Received: grad_bits=9"),
            ({"clip_factor": 2.5}, "`clip_factor` must be None where .* Received: clip_factor=2.5"),
            (
                {"rotate": False, "clip_factor": -1},
                "`clip_factor` must be 0 .* Received: clip_factor=-1",
            ),
            ({"rotate": False, "clip_factor": float("nan")}, "`clip_factor` must be"),
            ({"min_size": 0}, "`min_size` must be .* Received: min_size=0"),
            ({"quantize_logits": "yes"}, "`quantize_logits` must be a bool"),
            ({"sparse_as_dense": 1}, "`sparse_as_dense` must be True, .* Received: .*=1"),
            ({"rounding": "nearest"}, "`rounding` must be one of .*'nearest'"),
            ({"wire": "pigeon"}, "`wire` must be one of .*'pigeon'"),
            ({"seed": 1.5}, "`seed` must be a 32-bit integer. Received: seed=1.5"),
            ({"min_size": None}, "`min_size` must be .* Received: min_size=None"),
            ({"wire": None}, "`wire` must be one of .* Received: wire=None"),
            ({"sparse_as_dense": None}, "`sparse_as_dense` must be .* Received: .*=None"),
            ({"statistics_freq": None}, "`statistics_freq` must be .* Received: .*=None"),
            ({"telemetry_freq": True}, "`telemetry_freq` must be .* Received: .*=True"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                TernaryAllReduce(**strategy_options.arguments(**options))
        with self.assertRaises(TypeError):
            TernaryAllReduce(unknown=1)
        self.assertIn("bidirectional", WIRES)

    def test_strategy_and_op_take_the_declared_options_with_their_defaults(self):
        declared = {f.name: f.default for f in dataclasses.fields(ExchangeOptions)}
        # Users give these instead of the full rule.
        declared |= {"grad_bits": None, "quantization": None}
        # Follows from `grad_bits`.
        del declared["chooses_mode"]
        for taker in (TernaryAllReduce, TernGradStrategy):
            parameters = inspect.signature(taker.__init__).parameters
            taken = {name: parameters[name].default for name in parameters if name in declared}
            self.assertEqual(taken, declared, taker.__name__)

    def test_compiled_steps_of_a_stock_strategy_are_refused(self):
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], TernaryAllReduce())
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse", jit_compile=True)
        message = "`jit_compile=True` must not be combined"
        for train in (model.fit, model.train_on_batch):
            with self.assertRaisesRegex(ValueError, message):
                train(np.ones((8, 4)), np.ones((8, 1)))
        gradients = [tf.ones(v.shape) for v in model.trainable_variables]

        @tf.function(jit_compile=True)
        def replica():
            model.optimizer.apply(gradients, model.trainable_variables)

        with self.assertRaisesRegex(ValueError, message):
            strategy.run(replica)

    def test_sparse_gradients_are_summed_exactly(self):
        strategy = TernGradStrategy(2, sparse_as_dense=False)
        table, optimizer = table_under(strategy)

        @tf.function
        def step():
            def replica():
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                slices = tf.IndexedSlices(
                    tf.fill([1, 2], 0.3 * tf.cast(replica + 1, tf.float32)),
                    tf.constant([3]),
                    tf.constant([10, 2]),
                )
                optimizer.apply([slices], [table])

            strategy.run(replica)

        step()
        expected = np.zeros([10, 2])
        expected[3] = -0.9
        self.assertAllClose(table.numpy(), expected)
        self.assertEqual(strategy.traffic.wire, "float32")

    def test_rows_become_tensors_on_request(self):
        strategy = TernGradStrategy(
            2, sparse_as_dense=True, quantization=Quantization(rotate=False, clip_factor=0)
        )
        table, optimizer = table_under(strategy)

        @tf.function
        def step():
            def replica():
                # Row 3 occurs twice.
                rows = tf.constant([[0.5, 0.5], [-1.0, 1.0], [0.5, -0.5]])
                slices = tf.IndexedSlices(rows, tf.constant([3, 7, 3]), tf.constant([10, 2]))
                optimizer.apply([slices], [table])

            strategy.run(replica)

        step()
        expected = np.zeros([10, 2])
        # Each nonzero element is as large as the scale, 1, so rounding keeps it.
        expected[3], expected[7] = [-2, 0], [2, -2]
        self.assertAllEqual(table.numpy(), expected)
        self.assertNotEqual(strategy.traffic.wire, "float32")
        # Both replicas' words of 20 elements, and the scale.
        self.assertEqual(strategy.traffic.received_bytes, 4 + 4)

    @pytest.mark.slow
    def test_embeddings_learn_from_tensors_as_a_dense_layer_does(self):
        words = np.random.default_rng(0).integers(0, 9, [16, 5])
        targets = np.random.default_rng(1).normal(size=[16, 1])

        def fit(strategy, inputs, layer, data, weights=None):
            with strategy.scope():
                layers = [inputs, layer, keras.layers.Flatten(), keras.layers.Dense(1)]
                model = keras.Sequential(layers)
                model.compile(keras.optimizers.Adam(0.1), "mse")
            first = weights or model.get_weights()
            model.set_weights(first)
            model.fit(data, targets, batch_size=8, epochs=2, shuffle=False, verbose=0)
            return first, model.get_weights()

        one_hot = np.eye(9, dtype=np.float32)[words]
        for count in (1, 2, 4):
            strategy = TernGradStrategy(count, grad_bits=32, sparse_as_dense=True)
            inputs = keras.Input([5], dtype="int32")
            first, got = fit(strategy, inputs, keras.layers.Embedding(9, 3), words)
            dense = keras.layers.Dense(3, use_bias=False)
            plain = tf.distribute.get_strategy()
            _, expected = fit(plain, keras.Input([5, 9]), dense, one_hot, first)
            for a, b in zip(got, expected, strict=True):
                self.assertAllClose(a, b, rtol=1e-4, atol=1e-5)
            # Whole tensors travel instead of a step's 40 rows and their indices.
            num_bytes = 4 * (9 * 3 + 5 * 3 + 1)
            self.assertEqual(strategy.traffic.received_bytes, num_bytes * 2 * (count - 1) // count)

    def test_traffic_describes_the_last_step(self):
        strategy = TernGradStrategy(NUM_REPLICAS)
        steps, sizes = [], (50, 700)
        for size in sizes:
            with strategy.scope():
                variable, optimizer = tf.Variable(tf.zeros([size])), keras.optimizers.SGD(1.0)

            def step(variable=variable, optimizer=optimizer, size=size):
                strategy.run(lambda: optimizer.apply([tf.ones([size])], [variable]))

            steps.append(tf.function(step))
        self.assertIsNone(strategy.traffic)
        for step, size in 2 * list(zip(steps, sizes, strict=True)):
            step()
            self.assertEqual(strategy.traffic.float32_bytes, 2 * 3 * size)
        step()
        steps[0].python_function()
        self.assertEqual(strategy.traffic.float32_bytes, 2 * 3 * sizes[0])

    @pytest.mark.slow
    def test_traffic_counts_the_streams_of_a_wire_of_no_fixed_size(self):
        size = 64 * 512
        wires = ("sparse", "allgather")
        sparse, fixed = (
            TernGradStrategy(2, wire=wire, quantization=Quantization(rotate=False))
            for wire in wires
        )
        for share in (0.0, 0.01, 1.0):
            gradient = np.zeros(size, np.float32)
            gradient[: round(share * size)] = 1.0
            gradients = [[gradient] for _ in range(2)]
            (total,) = reduce_once(sparse, gradients)
            self.assertAllEqual(total, reduce_once(fixed, gradients)[0])
            streams = []
            scales = tf.constant([1.0])
            for replica in range(2):
                words = Quantization().encode(
                    [gradient], scales, step=0, replica=replica, num_replicas=2, base=4
                )
                streams.append(ternary.compress(words).shape[0])
            # The other replica's stream with its length, and the scale.
            least = 4 * (max(streams) + 1) + 4
            self.assertEqual(sparse.traffic.wire, "sparse")
            self.assertBetween(sparse.traffic.received_bytes, least, least * 33 / 32)
            self.assertEqual(sparse.traffic.float32_bytes, fixed.traffic.float32_bytes)

    def test_traffic_counts_the_rows_of_sparse_gradients(self):
        strategy = TernGradStrategy(NUM_REPLICAS, sparse_as_dense=False)
        with strategy.scope():
            table, optimizer = tf.Variable(tf.zeros([10, 2])), keras.optimizers.SGD(1.0)
        inputs = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int64)]

        @tf.function(input_signature=inputs)
        def step(indices, shape):
            def replica():
                values = tf.ones([tf.size(indices), 2])
                optimizer.apply([tf.IndexedSlices(values, indices, shape)], [table])

            strategy.run(replica)

        for indices in ([3], [0, 4, 9]):
            step(indices, [10, 2])
            # Each of the three others sends two numbers and an index a row.
            self.assertEqual(strategy.traffic.received_bytes, 3 * len(indices) * (8 + 4))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Tests of the exchange of gradients that are rotated before rounding."""

import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import DiLoCo, Quantization, TernaryAllReduce, TernGradStrategy
from terngrad_tf.distribute.exchange import buckets, wires
from tests import runs
from tests.distribute import processes, strategy_options
from tests.distribute.exchange.thread_processes import ThreadProcesses, in_threads
from tests.distribute.private.keras import second_moments_cases
from tests.distribute.samples import SHAPES, build, data, gradients_of, reduce_once

WORKER = pathlib.Path(__file__).with_name("rotated_worker.py")
WORDS = tuple(name for name in wires.WIRES if name not in wires.STREAMS)
# Environment of a process that computes as on an older processor.
OLDER = ("ONEDNN_MAX_CPU_ISA=SSE41", "TF_ENABLE_ONEDNN_OPTS=0", "XLA_FLAGS=--xla_cpu_max_isa=AVX")
# Errors of the reduced gradients of independent replicas, by grad_bits. Theory gives 0.36 for
# ternary codes of one Gaussian replica; correlated rounding leaves less.
ERRORS = {1: 0.36, 2: 0.13, 3: 0.08, 4: 0.02, 8: 0.0004}


def relative_error(got, gradients):
    """Squared distance to the float sum of the gradients, divided by its squared length."""
    by_tensor = zip(*gradients, strict=True)
    sums = [np.sum(of_replicas, axis=0, dtype=np.float64) for of_replicas in by_tensor]
    errors = sum(np.sum((a - b) ** 2) for a, b in zip(got, sums, strict=True))
    return errors / sum(np.sum(b**2) for b in sums)


def reduce_in_threads(wire, num_processes, num_local, quantization):
    """The result of each process, the bytes it received, and the traffic counted."""

    def reduce(processes):
        mine = range(processes.rank * num_local, (processes.rank + 1) * num_local)
        context = buckets.ReductionContext(
            ["CPU:0"] * num_local, num_processes * num_local, processes
        )
        gradients = [[tf.constant(g) for g in gradients_of(replica)] for replica in mine]
        results, *_ = buckets.reduce_bucket(bucket_of(context, quantization, gradients), wire)
        sizes = [g.shape.num_elements() for g in gradients[0]]
        counted = context.wire(wire, sizes, quantization).traffic
        return [local[0].numpy() for local in results], processes.received, counted

    return in_threads(num_processes, reduce)


def bucket_of(context, quantization, gradients):
    bucket = buckets.Bucket(
        context=context,
        quantization=quantization,
        gradients=gradients,
        measured=[quantization.local_scales(g) for g in gradients],
        indices=list(range(len(SHAPES))),
        step=tf.constant(3),
    )
    return bucket.with_shared_scales()


class WiresTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ("allgather", 3, 1, 1),
        ("alltoall", 3, 2, 1),
        ("allreduce", 2, 1, 2),
        ("allreduce", 3, 1, 1),
        ("auto", 2, 2, 4),
        ("auto", 2, 1, 8),
    )
    @pytest.mark.default_cases(3)
    def test_lossless_wires_give_all_the_bits_of_one_process(self, wire, processes, local, bits):
        quantization = Quantization(grad_bits=bits, seed=4)
        count = processes * local
        context = buckets.ReductionContext(["CPU:0"] * count, count, None)
        gradients = [[tf.constant(g) for g in gradients_of(k)] for k in range(count)]
        alone, *_ = buckets.reduce_bucket(bucket_of(context, quantization, gradients), wire)
        for found, received, counted in reduce_in_threads(wire, processes, local, quantization):
            for got, want in zip(found, alone, strict=True):
                np.testing.assert_array_equal(got, want[0])
            self.assertNear(counted.received_bytes, received, 2)
        self.assertEqual(
            counted.float32_bytes,
            round(2 * (processes - 1) / processes * 4 * sum(map(np.prod, SHAPES))),
        )

    def test_bidirectional_gives_all_processes_the_same(self):
        self.check_bidirectional(1)

    @pytest.mark.slow
    def test_bidirectional_gives_all_processes_the_same_finer_codes(self):
        self.check_bidirectional(4)

    def check_bidirectional(self, bits):
        quantization = Quantization(grad_bits=bits, seed=4)
        results = reduce_in_threads("bidirectional", 3, 2, quantization)
        for found, received, counted in results:
            for got, want in zip(found, results[0][0], strict=True):
                np.testing.assert_array_equal(got, want)
            self.assertNear(counted.received_bytes, received, 2)
        error = relative_error(results[0][0], [gradients_of(k) for k in range(6)])
        self.assertLess(error, {1: 1.4, 4: 0.08}[bits])

    @parameterized.parameters(2, 4, 8)
    def test_rotation_hardly_adds_bytes(self, num_processes):
        sizes = (64 * 3 * 3 * 64, 1000 * 512, 100, 64, 4_000_000)
        context = buckets.ReductionContext(
            ["CPU:0"], num_processes, ThreadProcesses(0, [None] * num_processes, None)
        )
        for wire in WORDS:
            rotated, plain = (
                context.wire(wire, sizes, Quantization(rotate=rotate)).traffic.received_bytes
                for rotate in (True, False)
            )
            self.assertBetween(rotated / plain, 1.0, 1.04 if wire == "bidirectional" else 1.03)


class RotatedAllReduceTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.gradients = [gradients_of(replica) for replica in range(4)]

    @parameterized.parameters(*ERRORS)
    @pytest.mark.default_cases(2)
    def test_errors_of_sums_match_theory(self, bits):
        strategy = TernGradStrategy(4, quantization=Quantization(grad_bits=bits, seed=7))
        got = reduce_once(strategy, self.gradients)
        self.assertBetween(
            relative_error(got, self.gradients), 0.2 * ERRORS[bits], 1.05 * ERRORS[bits]
        )

    def test_mean_over_steps_is_the_float_sum(self):
        strategy = TernGradStrategy(2, quantization=Quantization(seed=1))
        gradients = [[g[3].astype(np.float32)] for g in self.gradients[:2]]
        gradients[0][0][3:30] = 0
        gradients[0][0][40, 5] = 100.0
        total = np.zeros_like(gradients[0][0], np.float64)
        count = 100
        with strategy.scope():
            optimizer = keras.optimizers.SGD(1.0)
            variable = keras.Variable(tf.zeros(total.shape))
            optimizer.build([variable])
        stacked = tf.constant(np.stack([g[0] for g in gradients]))

        @tf.function
        def step():
            def replica():
                mine = tf.distribute.get_replica_context().replica_id_in_sync_group
                optimizer.apply([tf.gather(stacked, mine)], [variable])

            strategy.run(replica)

        for _ in range(count):
            step()
        total = -variable.numpy() / count
        want = np.sum([g[0] for g in gradients], axis=0)
        # The stated bias, and two standard errors of the mean.
        error = np.linalg.norm(total - want) / np.linalg.norm(want)
        self.assertLess(error, 0.06 + 2 * np.sqrt(0.5 / count))
        self.assertNear(total[40, 5], want[40, 5], 0.03 * want[40, 5])

    @pytest.mark.slow
    def test_stock_mirrored_strategy_gives_the_same(self):
        strategy = tf.distribute.MirroredStrategy(
            [f"CPU:{i}" for i in range(4)],
            cross_device_ops=TernaryAllReduce(quantization=Quantization(seed=3)),
        )
        want = reduce_once(TernGradStrategy(4, quantization=Quantization(seed=3)), self.gradients)
        for a, b in zip(reduce_once(strategy, self.gradients), want, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_one_replica_rounds(self):
        got = reduce_once(TernGradStrategy(1), self.gradients[:1])
        self.assertBetween(relative_error(got, self.gradients[:1]), 0.3, 0.5)

    @parameterized.parameters(np.nan, np.inf)
    @pytest.mark.default_cases(1)
    def test_nonfinite_values_reach_all_in_their_block(self, value):
        self.gradients[2][3][1, 5] = value
        got = reduce_once(TernGradStrategy(4), self.gradients)
        self.assertTrue(np.all(np.isnan(np.reshape(got[3], -1)[:1024])))
        self.assertTrue(np.all(np.isfinite(np.reshape(got[3], -1)[1024:])))
        for tensor in got[:3]:
            self.assertTrue(np.all(np.isfinite(tensor)))

    @pytest.mark.slow
    def test_small_tensors_and_float_ones_stay_float_on_request(self):
        strategy = TernGradStrategy(4, quantization=Quantization(min_size=360))
        got = reduce_once(strategy, self.gradients)
        for index in (1, 2):
            want = np.sum([g[index] for g in self.gradients], axis=0)
            np.testing.assert_allclose(got[index], want, rtol=1e-5, atol=1e-5)
        self.assertNotAllClose(got[0], np.sum([g[0] for g in self.gradients], axis=0))
        exact = reduce_once(TernGradStrategy(4, grad_bits=32), self.gradients)
        both = reduce_once(
            TernGradStrategy(4, quantization=Quantization(grad_bits=32, rotate=False)),
            self.gradients,
        )
        for a, b in zip(exact, both, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_tensors_of_all_sizes_and_types_take_part(self):
        shapes = ((), (0,), (1,), (2, 5), (16,), (1024,), (1025,), (7, 0, 3))
        rng = np.random.default_rng(1)
        floats = [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] * 3]
        floats.append([2 * value for value in floats[0]])
        types = [np.float32] * 8 + [np.float16] * 8 + [tf.bfloat16.as_numpy_dtype] * 8
        gradients = [
            [value.astype(kind) for value, kind in zip(of_replica, types, strict=True)]
            for of_replica in floats
        ]
        strategy = TernGradStrategy(2, grad_bits=8)
        got = reduce_once(strategy, gradients)
        for value, shape, one, two in zip(got, 3 * shapes, *floats, strict=True):
            self.assertEqual(value.shape, shape)
            self.assertAllClose(value, one + two, atol=0.2)
        # Words of four codes, and a scale per block.
        padded = 3 * (16 + 16 + 16 + 16 + 1024 + 1024 + 16)
        self.assertEqual(strategy.traffic.received_bytes, padded + 3 * 4 * 7)

    @pytest.mark.slow
    def test_steps_with_float_gradients_are_float(self):
        for is_float in (True, False):
            strategy = TernGradStrategy(
                4,
                quantization=Quantization(
                    float_steps=lambda step, is_float=is_float: step < int(is_float)
                ),
            )
            got = reduce_once(strategy, self.gradients)
            error = relative_error(got, self.gradients)
            self.assertBetween(error, *((0, 1e-12) if is_float else (0.1, ERRORS[1])))

    @pytest.mark.slow
    def test_statistics_and_telemetry_describe_rotated_codes(self):
        strategy = TernGradStrategy(4, statistics_freq=1, telemetry_freq=1)
        got = reduce_once(strategy, self.gradients)
        for index, shape in enumerate(SHAPES):
            record = strategy.gradient_statistics[f"v{index}"]
            counts = record.negative + record.zero + record.positive
            self.assertEqual(counts, np.prod(shape, dtype=int))
        last = strategy.telemetry.last
        self.assertNear(last.relative_error**2, relative_error(got, self.gradients), 1e-3)
        # E min(|r|, 1) is 0.63; it is smaller for replicas other than the largest.
        self.assertBetween(last.nonzero_share, 0.5, 0.63)
        self.assertEqual(last.received_bytes, strategy.traffic.received_bytes)

    def test_rows_of_embeddings_become_tensors(self):
        strategy = TernGradStrategy(2, sparse_as_dense=True, grad_bits=8)
        with strategy.scope():
            table = keras.Variable(tf.zeros([500, 4]))
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([table])

        @tf.function
        def step():
            def replica():
                rows = tf.IndexedSlices(tf.ones([2, 4]), tf.constant([3, 7]), tf.constant([500, 4]))
                optimizer.apply([rows], [table])

            strategy.run(replica)

        step()
        want = np.zeros([500, 4])
        want[[3, 7]] = -2
        self.assertAllClose(table.numpy(), want, atol=0.05)

    @pytest.mark.slow
    def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(self):
        x, y = data(64)

        def model():
            strategy = TernGradStrategy(2)
            return build(strategy, dropout=0.0, optimizer=lambda: keras.optimizers.Adam(0.01))

        def fit(model, epochs):
            model.fit(x, y, batch_size=16, epochs=epochs, shuffle=False, verbose=0)

        whole, stopped = model(), model()
        fit(whole, 4)
        fit(stopped, 2)
        path = f"{runs.class_folder(type(self))}/model.keras"
        stopped.save(path)
        with TernGradStrategy(2).scope():
            resumed = keras.models.load_model(path)
        fit(resumed, 2)
        for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.slow
    def test_local_steps_exchange_rotated_changes(self):
        x, y = data(128)
        losses = []
        for options in ({}, {"grad_bits": 32}):
            strategy = TernGradStrategy(2, **options)
            model = build(strategy, dropout=0.0, optimizer=lambda: DiLoCo("sgd", 4))
            history = model.fit(x, y, batch_size=16, epochs=6, shuffle=False, verbose=0)
            losses.append(history.history["loss"][-1])
        self.assertNear(losses[0], losses[1], 0.15)

    def test_options_incompatible_with_rotation_are_refused(self):
        rule = "must be None where gradients are rotated, as by default; rotate=False takes it"
        for options, message in (
            ({"clip_factor": 2.5}, f"`clip_factor` {rule}. Received: clip_factor=2.5"),
            ({"clip_factor": 0, "grad_bits": 4}, f"`clip_factor` {rule}. Received: clip_factor=0"),
            ({"rotate": True, "bits_per_element": 0.3}, f"`bits_per_element` {rule}. .*=0.3"),
            ({"rotate": True, "wire": "sparse"}, "`wire` .*rotate=True; rotate=False, --norotate"),
            ({"rotate": True, "wire": "sparse_bidirectional"}, "`wire` must be none of .*rotate="),
        ):
            with self.assertRaisesRegex(ValueError, message):
                TernaryAllReduce(**strategy_options.arguments(**options))
        for value in ("yes", 1, 0):
            with self.assertRaisesRegex(ValueError, "`rotate` must be a bool or None.*rotate="):
                Quantization(rotate=value)

    def test_all_but_streams_and_budgets_are_rotated(self):
        for wire in WORDS:
            for bits in range(1, 9):
                self.assertTrue(TernaryAllReduce(wire=wire, grad_bits=bits).quantization.rotate)
        for options in (
            *({"wire": "sparse"}, {"wire": "sparse_bidirectional"}, {"bits_per_element": 0.3}),
            {"wire": "sparse", "rotate": False, "clip_factor": 2.5},
        ):
            self.assertFalse(
                TernaryAllReduce(**strategy_options.arguments(**options)).quantization.rotate
            )


@pytest.mark.slow
class ClusterTest(tf.test.TestCase):
    """Two processes; one computes as on an older processor."""

    OPTIONS = (
        {},
        {"wire": "allgather"},
        {"wire": "allreduce", "grad_bits": 2},
        {"wire": "bidirectional"},
        {"grad_bits": 8},
    )
    OPTIMIZERS = (("Adam", {}), ("RMSprop", {"centered": True}), ("Adamax", {}))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        jobs = {
            "sums": {"options": cls.OPTIONS},
            "train": {},
            "moments": {"optimizers": cls.OPTIMIZERS},
            "resume": {},
        }
        before = [(), ("env", *OLDER)]
        folder = runs.class_folder(cls)
        cls.results = processes.run(WORKER, 2, folder, before=before, jobs=jobs)

    def test_all_processors_get_the_same_bits(self):
        for job in ("sums", "train", "moments", "resume"):
            first, second = (result[job] for result in self.results)
            for name in first:
                np.testing.assert_array_equal(first[name], second[name], name)

    def test_second_moments_are_those_of_one_process(self):
        results = self.results[0]["moments"]
        for index, (name, options) in enumerate(self.OPTIMIZERS):
            weights, optimizer = second_moments_cases.train(
                lambda name=name, options=options: getattr(keras.optimizers, name)(0.01, **options)
            )
            count = len(weights)
            averages = [average.numpy() for average in optimizer.rounding_noise.averages]
            for i, average in enumerate(averages, count):
                self.assertAllClose(results[f"{index}/{i}"], average, rtol=1e-4, atol=0)
            # A few codes round differently on another processor.
            for i, weight in enumerate(weights):
                self.assertLess(np.mean(np.abs(results[f"{index}/{i}"] - weight)), 1e-3, name)

    def test_bytes_match_measurements_and_errors_match_theory(self):
        sums = self.results[0]["sums"]
        for index, options in enumerate(self.OPTIONS):
            counted, measured = sums[f"{index}/bytes"]
            self.assertEqual(counted, measured)
            got = [sums[f"{index}/{i}"] for i in range(len(SHAPES))]
            error = relative_error(got, [gradients_of(k) for k in range(2)])
            bound = ERRORS[options.get("grad_bits", 1)]
            self.assertLess(error, 1.5 if options.get("wire") == "bidirectional" else bound)

    def test_nonfinite_values_reach_all(self):
        for result in self.results:
            sick = np.reshape(result["sums"]["sick"], -1)
            self.assertAllEqual(np.isnan(sick[:2048]), np.arange(2048) < 1024)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

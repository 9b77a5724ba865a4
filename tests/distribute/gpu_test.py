"""Tests that a GPU gives the bits that the CPU gives.

    python -m pytest --gpu tests/distribute/gpu_test.py

Other tests run on the CPU: they compare results to the last bit or with CPU computations.
"""

import json
import subprocess
import sys
import unittest

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf import ternary
from terngrad_tf.distribute import DiLoCo, Quantization, TernGradStrategy
from terngrad_tf.distribute.exchange import wires
from tests import runs
from tests.distribute import strategy_options
from tests.distribute.private.collectives import communication_cases
from tests.distribute.samples import gradients_of, reduce_once

SHAPES = ([7], [3, 3, 16, 32], [2**20 + 3], [1000, 129])
DTYPES = (tf.float32, tf.float16, tf.bfloat16, tf.float32)

# Logical GPUs must be made before TensorFlow starts.
TWO_GPUS = """
import json
import tensorflow as tf
gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.set_logical_device_configuration(
    gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=2048)] * 2
)
from terngrad_tf.distribute import Quantization, TernGradStrategy
from tests.distribute.samples import gradients_of, reduce_once
strategy = TernGradStrategy(4, num_gpus=2, rotate=False, clip_factor=0.0)
sums = reduce_once(strategy, [gradients_of(replica) for replica in range(4)])
devices = [device.rsplit("/")[-1] for device in strategy.extended.worker_devices]
print(json.dumps([devices, [value.tolist() for value in sums]]))
"""

# Determinism holds for the whole process.
DETERMINISTIC = """
import hashlib
import tensorflow as tf
tf.config.experimental.enable_op_determinism()
from terngrad_tf.distribute import DiLoCo, TernGradStrategy
from tests.distribute.samples import build, data
optimizers = (None, lambda: DiLoCo("sgd", 2))
for optimizer in (*optimizers, *optimizers):
    model = build(TernGradStrategy(4), optimizer=optimizer)
    model.fit(*data(), batch_size=32, epochs=2, shuffle=False, verbose=0)
    print(hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest())
"""


def output_of(script):
    """Lines that a script prints in a new process."""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout.splitlines()


@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="needs a GPU and --gpu")
class GpuTest(tf.test.TestCase, parameterized.TestCase):
    def assert_same_on_both(self, function):
        """Asserts that a function without arguments gives the same bits on CPU and GPU."""
        results = []
        for device in ("/CPU:0", "/GPU:0"):
            with tf.device(device):
                results.append([np.asarray(value) for value in tf.nest.flatten(function())])
        for cpu, gpu in zip(*results, strict=True):
            self.assertEqual(cpu.dtype, gpu.dtype)
            np.testing.assert_array_equal(cpu.view(np.uint8), gpu.view(np.uint8))

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(0)
        self.tensors = [
            tf.cast(rng.standard_normal(shape), dtype)
            for shape, dtype in zip(SHAPES, DTYPES, strict=True)
        ]
        self.scales = tf.constant([2.5, 1.75, 4.1, 3.0])
        self.options = dict(seed=3, step=tf.constant(2**33 + 7, tf.int64), num_replicas=4)

    @parameterized.parameters(
        *((rounding, base, 1) for rounding in ternary.ROUNDINGS for base in (3, 4, 9)),
        *(("correlated", base, levels) for base, levels in ((7, 3), (29, 7), (255, 127))),
    )
    def test_words_and_their_decoded_values(self, rounding, base, levels):
        def words():
            return ternary.encode(
                self.tensors,
                self.scales,
                replica=tf.constant(2),
                rounding=rounding,
                base=base,
                levels=levels,
                **self.options,
            )

        self.assert_same_on_both(words)
        gathered = tf.stack([words()] * 2)
        how = {"base": base, "total_bias": 2 * levels}
        self.assert_same_on_both(
            lambda: ternary.decode(gathered, self.scales, SHAPES, DTYPES, **how)
        )

    @parameterized.parameters(1, 7)
    def test_sums_of_the_replicas_of_a_device(self, levels):
        replicas = [[t * tf.cast(k + 1, t.dtype) for t in self.tensors] for k in range(4)]
        how = {"levels": levels, **self.options}
        self.assert_same_on_both(
            lambda: ternary.sum_codes(replicas, self.scales, replicas=range(4), **how)
        )

    def test_the_largest(self):
        found = []
        for device in ("/CPU:0", "/GPU:0"):
            with tf.device(device):
                found.append(ternary.largest_as_codes(self.tensors, 0.02))
        for cpu, gpu in zip(*found, strict=True):
            # The same elements; their mean is a sum in another order.
            self.assertAllEqual(tf.sign(cpu), tf.sign(gpu))
            self.assertAllClose(cpu, gpu, 1e-5 if cpu.dtype == tf.float32 else 1e-2, 0)

    def test_streams(self):
        words = ternary.encode(
            self.tensors, 40 * self.scales, replica=tf.constant(1), base=4, **self.options
        )
        self.assert_same_on_both(lambda: ternary.compress(words))
        stream = ternary.compress(words)
        self.assert_same_on_both(lambda: ternary.decompress(stream, words.shape[0]))

    def test_scales(self):
        with tf.device("/CPU:0"):
            expected = ternary.local_scales(self.tensors, 2.5)
            largest = ternary.local_scales(self.tensors, 0.0)
        with tf.device("/GPU:0"):
            # Sums of many numbers, in another order.
            self.assertAllClose(ternary.local_scales(self.tensors, 2.5), expected, 1e-5, 0)
            self.assertAllEqual(ternary.local_scales(self.tensors, 0.0), largest)

    @parameterized.parameters(*((wire, 1) for wire in wires.WIRES), ("auto", 4))
    def test_gradients_of_replicas(self, wire, bits):
        gradients = [gradients_of(replica) for replica in range(4)]
        options = {"rotate": False, "clip_factor": 0.0, "wire": wire, "grad_bits": bits}
        on_gpu, on_cpu = (
            reduce_once(
                TernGradStrategy(4, num_gpus=n, **strategy_options.arguments(**options)), gradients
            )
            for n in (1, 0)
        )
        for gpu, cpu in zip(on_gpu, on_cpu, strict=True):
            np.testing.assert_array_equal(gpu, cpu)

    def test_replicas_of_two_gpus(self):
        devices, sums = json.loads(output_of(TWO_GPUS)[-1])
        self.assertEqual(devices, ["device:GPU:0"] * 2 + ["device:GPU:1"] * 2)
        expected = reduce_once(
            TernGradStrategy(
                4, num_gpus=0, quantization=Quantization(rotate=False, clip_factor=0.0)
            ),
            [gradients_of(replica) for replica in range(4)],
        )
        for found, value in zip(sums, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(found, np.float32), value)

    def test_deterministic_operations_train_twice_alike(self):
        first, first_local, second, second_local = output_of(DETERMINISTIC)[-4:]
        self.assertEqual((first, first_local), (second, second_local))
        self.assertNotEqual(first, first_local)

    def test_values_that_differ_between_replicas_are_refused(self):
        """Assertions have no effect in a step that the GPU runs."""
        strategy = TernGradStrategy(2)
        with strategy.scope():
            variable = tf.Variable(0.0)

        @tf.function
        def step():
            def merge(_, value):
                strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(value,))

            def replica():
                context = tf.distribute.get_replica_context()
                number = tf.cast(context.replica_id_in_sync_group, tf.float32)
                context.merge_call(merge, args=(number,))

            strategy.run(replica)

        with self.assertRaisesRegex(ValueError, "differ between replicas"):
            step()

    def fit(self, scope, optimizer):
        """The weights after a small training."""
        rng = np.random.default_rng(1)
        x = rng.standard_normal((64, 20)).astype(np.float32)
        y = rng.integers(0, 3, 64)
        keras.utils.set_random_seed(2)
        with scope:
            model = keras.Sequential([keras.layers.Input((20,)), keras.layers.Dense(3)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer(), loss, jit_compile=False)
        model.fit(x, y, batch_size=32, epochs=3, shuffle=False, verbose=0)
        return model.get_weights()

    def assert_close(self, found, expected):
        for own, other in zip(found, expected, strict=True):
            self.assertAllClose(own, other, 1e-5, 1e-6)

    def without_tensor_float_32(self):
        tf.config.experimental.enable_tensor_float_32_execution(False)
        self.addCleanup(tf.config.experimental.enable_tensor_float_32_execution, True)

    def test_float_gradients_train_as_plain_keras_does(self):
        self.without_tensor_float_32()

        def momentum():
            return keras.optimizers.SGD(0.1, momentum=0.9)

        plain = self.fit(tf.device("/GPU:0"), momentum)
        self.assert_close(self.fit(TernGradStrategy(4, grad_bits=32).scope(), momentum), plain)

    @parameterized.parameters(
        {"grad_bits": 32},
        {"rotate": False, "clip_factor": 0.0},
        {"bits_per_element": 0.4, "wire": "sparse"},
    )
    def test_local_steps_train_as_on_the_cpu(self, **options):
        self.without_tensor_float_32()
        on_gpu, on_cpu = (
            self.fit(
                TernGradStrategy(4, num_gpus=n, **strategy_options.arguments(**options)).scope(),
                lambda: DiLoCo(keras.optimizers.SGD(0.1, momentum=0.9), 2),
            )
            for n in (1, 0)
        )
        self.assert_close(on_gpu, on_cpu)


class TwoProcessesTest(communication_cases.ClusterCase):
    places = ("GPU:0", "GPU:0")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not tf.config.list_physical_devices("GPU"):
            raise unittest.SkipTest("needs a GPU and --gpu")
        cls.start(runs.class_folder(cls))

    def test_replicas_are_on_the_requested_devices(self):
        self.check_places()

    def test_sums_are_those_of_one_process_to_the_bit(self):
        self.check_sums()

    def test_both_have_the_same_weights(self):
        self.check_equal()

    def test_float_gradients_train_as_on_the_cpu(self):
        self.check_float_training(1e-4, 1e-5)


class GpuBesideCpuTest(TwoProcessesTest):
    places = ("GPU:0", "CPU:0")

    def test_both_have_the_same_weights(self):
        # Each device rounds a product and a sum in its own way.
        self.check_equal(1e-4, 1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

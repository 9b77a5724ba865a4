"""Tests of replicas on several devices of one process; logical CPUs replace GPUs."""

import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import DiLoCo, TernGradStrategy, private, virtual_devices
from terngrad_tf.distribute.exchange import wires
from tests.distribute import strategy_options
from tests.distribute.samples import build, data, gradients_of, reduce_once

NUM_REPLICAS = 4
# One gathers words; the other lets owners add them.
QUICK_WIRES = ("allgather", "bidirectional")


def strategy_on(num_devices, num_replicas=NUM_REPLICAS, **options):
    """A strategy whose replicas share `num_devices` CPUs as they would share GPUs."""

    def local_devices(num_nodes, num_gpus):
        del num_gpus
        with mock.patch.object(virtual_devices, "_num_gpus", lambda: num_devices):
            devices = stock(num_nodes)
        return [device.replace("GPU", "CPU") for device in devices]

    stock = virtual_devices.local_devices
    with mock.patch.object(virtual_devices, "local_devices", local_devices):
        return TernGradStrategy(num_replicas, **strategy_options.arguments(**options))


class DevicesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (4, 2, [0, 0, 1, 1]), (5, 2, [0, 0, 0, 1, 1]), (2, 4, [0, 1]), (3, 3, [0, 1, 2])
    )
    def test_devices_share_replicas_evenly_and_in_order(self, replicas, devices, expected):
        extended = strategy_on(devices, replicas).extended
        self.assertEqual([int(d.rsplit(":")[-1]) for d in extended.worker_devices], expected)

    @parameterized.parameters(*QUICK_WIRES)
    @pytest.mark.default_cases(1)
    def test_sums_are_those_of_one_device_to_the_bit(self, wire):
        self.check_sums(wire)

    @parameterized.parameters(*(wire for wire in wires.WIRES if wire not in QUICK_WIRES))
    @pytest.mark.long
    def test_sums_of_other_wires_are_those_of_one_device_to_the_bit(self, wire):
        self.check_sums(wire)

    def check_sums(self, wire):
        gradients = [gradients_of(replica) for replica in range(NUM_REPLICAS)]
        one, two = (
            reduce_once(strategy_on(count, wire=wire, rotate=False), gradients) for count in (1, 2)
        )
        for first, second in zip(one, two, strict=True):
            np.testing.assert_array_equal(first, second)

    def train(self, num_devices, optimizer=None, **options):
        model = build(
            strategy_on(num_devices, grad_bits=32), dropout=0.0, optimizer=optimizer, **options
        )
        model.fit(*data(128), batch_size=32, epochs=2, shuffle=False, verbose=0)
        return model

    @pytest.mark.slow
    def test_float_gradients_train_as_on_one_device(self):
        self.check_float_gradients()

    @pytest.mark.slow
    def test_steps_together_train_as_on_one_device(self):
        self.check_float_gradients(steps_per_execution=3, synchronized=True)

    def check_float_gradients(self, **options):
        one, two = (self.train(count, **options) for count in (1, 2))
        for first, second in zip(one.get_weights(), two.get_weights(), strict=True):
            self.assertAllClose(first, second, 1e-4, 1e-5)

    @pytest.mark.slow
    def test_local_steps_train_as_on_one_device(self):
        one, two = (self.train(count, optimizer=lambda: DiLoCo("sgd", 3)) for count in (1, 2))
        for first, second in zip(one.get_weights(), two.get_weights(), strict=True):
            self.assertAllClose(first, second, 1e-4, 1e-5)

    @pytest.mark.slow
    def test_predictions_have_the_order_of_the_examples(self):
        model = self.train(2)
        x, _ = data(30)
        expected = model(x).numpy()
        # Matrix products are less exact on some devices.
        self.assertAllClose(model.predict(x, batch_size=8, verbose=0), expected, 0, 1e-3)

    @parameterized.parameters(32, 1)
    @pytest.mark.slow
    def test_gradients_of_rows(self, grad_bits):
        tables = []
        for count in (1, 2):
            strategy = strategy_on(count, grad_bits=grad_bits)
            with strategy.scope():
                table = keras.Variable(tf.ones([6, 2]))
                optimizer = keras.optimizers.SGD(1.0)
                optimizer.build([table])

            def replica(table=table, optimizer=optimizer):
                number = tf.distribute.get_replica_context().replica_id_in_sync_group
                values = tf.fill([1, 2], 0.25 * tf.cast(number + 1, tf.float32))
                slices = tf.IndexedSlices(values, tf.reshape(number, [1]), tf.constant([6, 2]))
                optimizer.apply([slices], [table])

            tf.function(lambda s=strategy, r=replica: s.run(r))()
            tables.append(table.numpy())
        self.assertAllEqual(tables[0], tables[1])
        if grad_bits == 32:
            self.assertAllEqual(tables[0][:, 0], [0.75, 0.5, 0.25, 0.0, 1.0, 1.0])

    def test_a_gradient_made_outside_counts_once(self):
        strategy = strategy_on(2)
        with strategy.scope():
            variable = keras.Variable([1.0, 1.0])
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([variable])
        gradient = tf.constant([0.5, -0.5])
        tf.function(lambda: strategy.run(lambda: optimizer.apply([gradient], [variable])))()
        self.assertAllEqual(variable, [0.5, 1.5])

    def test_a_check_of_a_gpu_runs_on_its_host(self):
        @tf.function
        def step(number):
            with tf.device("/device:GPU:0"):
                check = private.assert_on_host(tf.equal(number, 3), "not three")
                with tf.control_dependencies([check]):
                    return tf.identity(number)

        graph = step.get_concrete_function(tf.TensorSpec([], tf.int64)).graph
        # The check would be on the GPU in a branch, and not visible here.
        (check,) = (op for op in graph.get_operations() if op.type == "Assert")
        self.assertIn("CPU:0", check.device)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

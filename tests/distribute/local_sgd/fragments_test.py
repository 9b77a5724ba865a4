"""`DiLoCo` with groups of weights exchanged in turn, compared with plain Keras models."""

import itertools
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import terngrad_tf
from terngrad_tf import DiLoCo
from terngrad_tf.distribute.local_sgd.fragments import Turns, divide
from tests.distribute.local_sgd.local_steps_cases import (
    ResumeCases,
    adamw,
    data,
    nesterov,
    network,
    trained,
    trained_apart,
)

SGD = keras.optimizers.SGD
# `network` has a kernel of 30 elements, biases, and a kernel of 5.
GROUPS = {1: None, 2: [[0], [1, 2, 3]], 3: [[0], [1, 3], [2]], 4: [[0], [1], [2], [3]]}


class DivideTest(parameterized.TestCase, tf.test.TestCase):
    """Division of weights into groups."""

    def test_the_largest_group_is_at_most_a_third_larger_than_need_be(self):
        rng = np.random.default_rng(0)
        for _ in range(50):
            sizes = rng.integers(0, 30, size=rng.integers(1, 7)).tolist()
            num_groups = int(rng.integers(1, len(sizes) + 1))
            groups = divide(sizes, num_groups)
            self.assertEqual(sorted(itertools.chain(*groups)), list(range(len(sizes))))
            self.assertLen(groups, num_groups)
            self.assertTrue(all(groups))
            # An empty tensor counts as one element.
            counts = [max(1, size) for size in sizes]
            best = min(
                max(sum(c for c, g in zip(counts, choice, strict=True) if g == n) for n in choice)
                for choice in itertools.product(range(num_groups), repeat=len(sizes))
            )
            largest = max(sum(counts[i] for i in group) for group in groups)
            self.assertLessEqual(largest, 4 / 3 * best)

    def test_groups_of_the_test_network(self):
        for fragments in (2, 3, 4):
            self.assertEqual(divide([30, 5, 5, 1], fragments), GROUPS[fragments])

    def test_more_groups_than_weights_are_refused(self):
        with self.assertRaisesRegex(ValueError, "`fragments` must be at most.* 2.*fragments=3"):
            divide([4, 5], 3)


class TurnsTest(parameterized.TestCase, tf.test.TestCase):
    """When groups are exchanged."""

    @parameterized.parameters((1, 1), (4, 1), (4, 2), (6, 3), (3, 3))
    def test_each_group_is_exchanged_at_fixed_intervals(self, sync_every, fragments):
        turns = Turns(sync_every, fragments)
        exchanged_at = [[] for _ in range(fragments)]
        for steps in range(4 * sync_every):
            group = int(turns.group_after(tf.constant(steps, tf.int64)))
            if group < fragments:
                exchanged_at[group].append(steps)
            last = [(at or [0])[-1] for at in exchanged_at]
            self.assertEqual(
                turns.changed_after(steps), [g for g, at in enumerate(last) if at < steps]
            )
        for group, at in enumerate(exchanged_at):
            first = (group + 1) * sync_every // fragments
            self.assertEqual(at, list(range(first, 4 * sync_every, sync_every)))

    @parameterized.parameters(
        ((0, 1), "`sync_every` must be a positive integer.*0"),
        ((4, 0), "`fragments` must be a positive integer.*0"),
        ((4, 3), "`fragments` must divide `sync_every`, 4.*fragments=3"),
    )
    def test_values_out_of_range_are_refused(self, arguments, message):
        with self.assertRaisesRegex(ValueError, message):
            Turns(*arguments)


class EqualsTest(parameterized.TestCase, tf.test.TestCase):
    """Numbers with float exchanges."""

    def test_replicas_train_as_models_apart(self):
        self.check(2, 6, 2, 8)

    @parameterized.parameters((3, 3, 3, 4), (2, 16, 4, 12))
    @pytest.mark.long
    def test_more_replicas_and_fragments_train_as_models_apart(self, *case):
        self.check(*case)

    def check(self, num_replicas, sync_every, fragments, length):
        model = trained(
            lambda: DiLoCo(adamw(), sync_every, outer=nesterov(), fragments=fragments),
            num_replicas,
            num_examples=12 * length,
            fit={"epochs": 2},
        )
        expected = trained_apart(
            *(adamw, nesterov, num_replicas, sync_every),
            groups=GROUPS[fragments],
            epoch_lengths=[length, length],
        )
        for weight, value in zip(model.weights, expected, strict=True):
            self.assertAllClose(weight.numpy(), value, rtol=2e-5, atol=2e-6, msg=weight.path)

    @pytest.mark.slow
    def test_the_schedule_of_each_group_counts_its_exchanges(self):
        def outer():
            schedule = keras.optimizers.schedules.ExponentialDecay(0.8, 1, 0.5)
            return keras.optimizers.Adam(schedule)

        model = trained(
            lambda: DiLoCo(SGD(0.1), 4, outer=outer(), fragments=2), 2, num_examples=144
        )
        expected = trained_apart(
            lambda: SGD(0.1), outer, 2, 4, groups=GROUPS[2], epoch_lengths=[12, 12, 12]
        )
        self.assertAllClose(model.get_weights(), expected, rtol=2e-5, atol=2e-6)


class TrafficTest(parameterized.TestCase, tf.test.TestCase):
    """Bytes of an exchange."""

    def exchanges(self, fragments, grad_bits):
        """Bytes received in the last exchange after each step, and in all groups' exchanges."""
        strategy = terngrad_tf.TernGradStrategy(num_nodes=2, grad_bits=grad_bits)
        with strategy.scope():
            layers = [keras.layers.Dense(20, use_bias=False) for _ in range(4)]
            model = keras.Sequential([keras.Input([20]), *layers])
            model.compile(DiLoCo(SGD(0.01), 4, fragments=fragments), "mse")
        received = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                traffic = strategy.traffic
                received.append(0 if traffic is None else traffic.received_bytes)

        x = np.ones([8, 20], np.float32)
        model.fit(x, x, batch_size=2, verbose=0, callbacks=[Look()])
        return received, strategy.traffic_of(0, model.optimizer.groups).received_bytes

    @pytest.mark.slow
    def test_a_part_travels_at_a_time(self):
        self.check_parts(1)

    @pytest.mark.long
    def test_a_part_of_floats_travels_at_a_time(self):
        self.check_parts(32)

    def check_parts(self, grad_bits):
        whole, in_all = self.exchanges(1, grad_bits)
        self.assertEqual(whole, [0, 0, 0, in_all])
        parts, in_all = self.exchanges(4, grad_bits)
        # Messages consist of whole words.
        self.assertAllClose(parts, [whole[3] / 4] * 4, rtol=0.02)
        self.assertEqual(in_all, sum(parts))


@pytest.mark.slow
class OptionsTest(parameterized.TestCase, tf.test.TestCase):
    """Other ways to train."""

    def optimizer(self):
        return DiLoCo(adamw(), 4, outer=nesterov(), fragments=2)

    def test_steps_per_execution(self):
        one, several = (
            trained(
                *(self.optimizer, 2),
                grad_bits=1,
                num_examples=108,
                compile_options={"steps_per_execution": n},
            )
            for n in (1, 2)
        )
        for a, b in zip(one.get_weights(), several.get_weights(), strict=True):
            self.assertAllEqual(a, b)

    def test_run_eagerly(self):
        graph, eager = (
            trained(
                lambda: DiLoCo(SGD(0.1, momentum=0.5), 4, fragments=2),
                2,
                compile_options={"run_eagerly": eagerly},
                num_examples=60,
                fit={"epochs": 1},
            )
            for eagerly in (False, True)
        )
        self.assertAllClose(graph.get_weights(), eager.get_weights(), rtol=1e-5, atol=1e-6)

    def test_a_step_is_traced_once(self):
        traces = []

        class Count(keras.losses.MeanSquaredError):
            def call(self, y_true, y_pred):
                traces.append(0)
                return super().call(y_true, y_pred)

        strategy = terngrad_tf.TernGradStrategy(num_nodes=2)
        with strategy.scope():
            model = network()
            model.compile(self.optimizer(), Count())
        model.fit(*data(144), batch_size=12, epochs=2, verbose=0)
        # Keras calls the loss once earlier, to build it.
        self.assertLessEqual(len(traces), 2)

    def test_weights_change_group_by_group(self):
        seen = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                seen.append(self.model.get_weights())

        trained(self.optimizer, 2, num_examples=120, fit={"callbacks": [Look()], "epochs": 1})
        changed = [
            [i for i, (a, b) in enumerate(zip(*pair, strict=True)) if not np.array_equal(a, b)]
            for pair in itertools.pairwise(seen)
        ]
        first, second = GROUPS[2]
        self.assertEqual(changed, [[], first, [], second, [], first, [], second, []])

    def test_moving_averages_cover_all_weights(self):
        exchanged = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if batch % 2:
                    exchanged.append(self.model.get_weights())

            def on_epoch_end(self, epoch, logs=None):
                exchanged.append(self.model.get_weights())

        def optimizer():
            outer = SGD(1.0, use_ema=True, ema_momentum=0.5)
            return DiLoCo(SGD(0.1), 4, outer=outer, fragments=2)

        model = trained(
            *(optimizer, 2),
            num_examples=96,
            fit={"callbacks": [Look()], "epochs": 1},
        )
        # Keras' average begins with the weights of the first exchange, here with each group's.
        for average, _, *weights in zip(model.get_weights(), *exchanged, strict=True):
            expected = weights[0]
            for weight in weights[1:]:
                expected = 0.5 * expected + 0.5 * weight
            self.assertAllClose(average, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
class ResumeTest(ResumeCases, parameterized.TestCase, tf.test.TestCase):
    """Runs that stop between two exchanges and continue, equal to the bit."""

    def compiled(self):
        strategy = terngrad_tf.TernGradStrategy(
            num_nodes=2, quantization=terngrad_tf.Quantization(rotate=False, clip_factor=0)
        )
        with strategy.scope():
            model = network(batch_norm=True)
            model.compile(DiLoCo(adamw(), 6, outer=nesterov(), fragments=3), "mse")
        return strategy, model

    @parameterized.parameters(("checkpoint", 9), ("keras", 5))
    def test_between_two_exchanges(self, kind, step):
        self.assert_goes_on(kind, step, 17)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

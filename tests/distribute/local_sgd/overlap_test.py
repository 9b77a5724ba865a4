"""`DiLoCo` whose changes travel during further steps, compared with plain Keras models."""

import gc
import os
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import terngrad_tf
from terngrad_tf import DiLoCo
from terngrad_tf.distribute.local_sgd.background import BackgroundFunctions
from terngrad_tf.distribute.local_sgd.fragments import Turns
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
GROUPS = {1: None, 2: [[0], [1, 2, 3]], 3: [[0], [1, 3], [2]]}


def concrete(function):
    signature = [tf.TensorSpec([], tf.int64)]
    return tf.function(function, input_signature=signature).get_concrete_function()


class BackgroundFunctionsTest(tf.test.TestCase):
    """The background thread."""

    def test_steps_continue_until_they_take_the_result(self):
        background = BackgroundFunctions()
        gate = tf.queue.FIFOQueue(1, tf.int64, [])
        background.add("add", concrete(lambda n: [n + gate.dequeue(), tf.cast(n, tf.float32)]))

        @tf.function
        def step(n):
            if n == 0:
                background.start("add", tf.constant(3, tf.int64))
            return n + 1

        # This would wait forever if the step that starts the function waited for it.
        self.assertEqual(step(step(tf.constant(0))), 2)
        gate.enqueue(tf.constant(4, tf.int64))
        total, copy = tf.function(lambda: background.result("add"))()
        self.assertEqual((int(total), float(copy)), (7, 3.0))

    def test_starts_and_results_within_a_loop(self):
        background = BackgroundFunctions()
        background.add("square", concrete(lambda n: [n * n]))
        background.add("negative", concrete(lambda n: [-n]))

        @tf.function
        def steps(count):
            total = tf.constant(0, tf.int64)
            for n in tf.range(count):
                if n % 2 == 0:
                    background.start("square", n)
                    background.start("negative", n)
                else:
                    (square,), (negative,) = map(background.result, ("square", "negative"))
                    total += square + negative
            return total

        self.assertEqual(steps(tf.constant(6, tf.int64)), 0 + 4 - 2 + 16 - 4)

    def test_an_error_is_raised_in_the_step_that_waits(self):
        background = BackgroundFunctions()

        def fail(n):
            with tf.control_dependencies([tf.debugging.Assert(n > 0, ["n is too small"])]):
                return [tf.identity(n)]

        background.add("fail", concrete(fail))
        step = tf.function(lambda: background.result("fail"))
        for argument in (0, 1):
            background.start("fail", tf.constant(argument, tf.int64))
            if argument:
                self.assertEqual(step()[0], 1)
            else:
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "n is too small"):
                    step()

    def test_the_thread_ends_with_the_object(self):
        before = set(threading.enumerate())
        background = BackgroundFunctions()
        (thread,) = set(threading.enumerate()) - before
        del background
        gc.collect(1)
        thread.join(timeout=60)
        self.assertFalse(thread.is_alive())


class TurnsTest(parameterized.TestCase, tf.test.TestCase):
    """When exchanges start and end."""

    @parameterized.parameters((4, 1, 1), (4, 1, 4), (6, 2, 3), (6, 3, 1))
    def test_each_exchange_ends_overlap_steps_after_its_start(self, sync_every, fragments, overlap):
        turns = Turns(sync_every, fragments, overlap)
        under_way = None
        for steps in range(3 * sync_every):
            arrived = int(turns.arrived_after(tf.constant(steps, tf.int64)))
            if arrived < fragments:
                self.assertEqual(under_way, (arrived, steps - overlap))
                under_way = None
            started = int(turns.group_after(tf.constant(steps, tf.int64)))
            if started < fragments:
                self.assertIsNone(under_way)
                under_way = started, steps
            self.assertEqual(turns.under_way_after(steps), under_way and under_way[0])
            # Replicas keep a share of local weights, so every group counts as changed.
            self.assertLen(turns.changed_after(steps), fragments if steps else 0)

    def test_values_out_of_range_are_refused(self):
        for overlap in (-1, 4, 1.0):
            with self.assertRaisesRegex(ValueError, "`overlap` must be an integer from 0 to the 3"):
                DiLoCo("sgd", 6, fragments=2, overlap=overlap)
        with self.assertRaisesRegex(ValueError, "`alpha` must be a number from 0 to 1.*1.5"):
            DiLoCo("sgd", 6, overlap=1, alpha=1.5)


class EqualsTest(parameterized.TestCase, tf.test.TestCase):
    """Numbers with float exchanges."""

    def test_replicas_train_as_models_apart(self):
        self.check(2, 6, 2, 2, 0.25, 8)

    @parameterized.parameters((3, 3, 3, 1, 0.0, 8), (2, 4, 1, 4, 0.5, 12))
    @pytest.mark.long
    def test_more_replicas_and_overlaps_train_as_models_apart(self, *case):
        self.check(*case)

    def check(self, num_replicas, sync_every, fragments, overlap, alpha, length):
        options = {"overlap": overlap, "alpha": alpha}
        model = trained(
            lambda: DiLoCo(adamw(), sync_every, outer=nesterov(), fragments=fragments, **options),
            num_replicas,
            num_examples=12 * length,
            fit={"epochs": 2},
        )
        expected = trained_apart(
            *(adamw, nesterov, num_replicas, sync_every),
            groups=GROUPS[fragments],
            epoch_lengths=[length, length],
            **options,
        )
        for weight, value in zip(model.weights, expected, strict=True):
            self.assertAllClose(weight.numpy(), value, rtol=2e-5, atol=2e-6, msg=weight.path)


class OptionsTest(parameterized.TestCase, tf.test.TestCase):
    """Other ways to train."""

    def optimizer(self):
        return DiLoCo(adamw(), 4, outer=nesterov(), fragments=2, overlap=1)

    @pytest.mark.long
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

    @pytest.mark.slow
    def test_loss_scaling_skips_a_step_on_all_replicas(self):
        strategy = terngrad_tf.TernGradStrategy(num_nodes=2, grad_bits=32)
        with strategy.scope():
            model = network()
            local = DiLoCo(SGD(0.1), 2, outer=SGD(1.0), overlap=1)
            optimizer = keras.optimizers.LossScaleOptimizer(local, initial_scale=8.0)
            model.compile(optimizer, "mse", auto_scale_loss=False)
        x, y = data(24)
        x[9] = np.inf  # while the first exchange is under way
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        self.assertEqual(local.iterations.numpy(), 5)
        self.assertEqual(local.outer.iterations.numpy(), 3)
        self.assertTrue(all(np.isfinite(weight).all() for weight in model.get_weights()))

    @pytest.mark.slow
    def test_weights_change_when_an_exchange_ends(self):
        seen = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                seen.append(self.model.get_weights())

        trained(self.optimizer, 2, num_examples=120, fit={"callbacks": [Look()], "epochs": 1})
        changed = [
            [i for i, (a, b) in enumerate(zip(*pair, strict=True)) if not np.array_equal(a, b)]
            for pair in zip(seen[:-1], seen[1:], strict=True)
        ]
        first, second = GROUPS[2]
        self.assertEqual(changed, [[], [], first, [], second, [], first, [], second])

    @pytest.mark.slow
    def test_the_outer_optimizer_gets_the_same_codes_and_noise(self):
        found = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if batch == 3 + overlap:
                    averages = [average.numpy() for average in outer.rounding_noise.averages]
                    found.append((strategy.traffic, averages))

        for overlap in (0, 2):
            strategy = terngrad_tf.TernGradStrategy(num_nodes=2)
            with strategy.scope():
                model = network()
                # All its gradients have finer codes.
                outer = keras.optimizers.Muon(0.1)
                model.compile(DiLoCo(SGD(0.1), 4, outer=outer, overlap=overlap), "mse")
            x, y = data(24)
            model.fit(x, y, batch_size=4, shuffle=False, verbose=0, callbacks=[Look()])
        (traffic, waited), (traffic_beside, beside) = found
        self.assertEqual(traffic_beside, traffic)
        for one, other in zip(waited, beside, strict=True):
            self.assertGreater(one.min(), 0)
            self.assertAllEqual(one, other)

    @pytest.mark.slow
    def test_a_replica_without_examples_applies_the_exchange(self):
        """An exchange ends in the last step, in which half of the replicas have no examples."""
        model = trained(
            lambda: DiLoCo(SGD(0.1), 2, outer=SGD(1.0), overlap=2),
            4,
            fit={"batch_size": 4, "epochs": 2},
            num_examples=30,
        )
        self.assertTrue(all(np.isfinite(weight).all() for weight in model.get_weights()))


class ResumeTest(ResumeCases, parameterized.TestCase, tf.test.TestCase):
    """Runs that stop while changes travel and continue, equal to the bit."""

    def compiled(self):
        strategy = terngrad_tf.TernGradStrategy(
            num_nodes=2, quantization=terngrad_tf.Quantization(rotate=False, clip_factor=0)
        )
        with strategy.scope():
            model = network(batch_norm=True)
            optimizer = DiLoCo(adamw(), 6, outer=nesterov(), fragments=2, overlap=2)
            model.compile(optimizer, "mse")
        return strategy, model

    @pytest.mark.slow
    def test_while_an_exchange_is_under_way(self, kind="checkpoint", step=7):
        self.assert_goes_on(kind, step, 17)

    @pytest.mark.long
    def test_while_an_exchange_is_under_way_from_a_keras_file(self):
        self.test_while_an_exchange_is_under_way("keras", 9)

    @pytest.mark.slow
    def test_going_back_while_another_exchange_is_under_way(self):
        path = os.path.join(self.get_temp_dir(), "back")

        class SaveAndGoBack(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer)
                if batch == 3:
                    checkpoint.write(path)
                if batch == 6:
                    checkpoint.read(path)

        _, undisturbed = self.compiled()
        batches = tf.data.Dataset.from_tensor_slices(data(12)).batch(12).repeat()
        undisturbed.fit(batches, steps_per_epoch=10, verbose=0)
        _, back = self.compiled()
        back.fit(batches, steps_per_epoch=13, verbose=0, callbacks=[SaveAndGoBack()])
        self.assert_same_state(undisturbed, back)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""`DiLoCo` with `sync_seconds`: processes of unequal speed, compared with float64 sums."""

import pathlib
import sys
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import terngrad_tf
from terngrad_tf import DiLoCo
from terngrad_tf.distribute.local_sgd.paced_steps import Plan, own_steps
from tests import runs
from tests.distribute import processes
from tests.distribute.local_sgd.local_steps_cases import (
    Exchanges,
    adamw,
    data,
    nesterov,
    network,
    step_outside_of_fit,
    trained,
)
from tests.distribute.local_sgd.paced_steps_cases import expected

WORKER = pathlib.Path(__file__).with_name("paced_steps_worker.py")
SGD = keras.optimizers.SGD


class NumbersTest(parameterized.TestCase, tf.test.TestCase):
    """The number of steps that a process takes."""

    @parameterized.parameters((1, 1), (1, 7), (3, 7), (7, 7), (20, 7), (5, 1))
    def test_steps_of_a_round_are_spread_evenly(self, planned, of_round):
        taken = [own_steps(step, planned, of_round) for step in range(of_round)]
        self.assertEqual(sum(taken), planned)
        self.assertGreaterEqual(taken[0], 1)
        self.assertLessEqual(max(taken) - min(taken), 1)

    def test_a_plan_follows_the_speed(self):
        plan = Plan(seconds=10.0)
        self.assertEqual(plan.after(1), 1)
        plan.add(2, 1.0)
        self.assertEqual(plan.after(1), 4)
        self.assertEqual(plan.after(16), 20)
        for _ in range(20):
            plan.add(10, 10.0)
        self.assertEqual(plan.after(20), 10)
        plan.add(1, 1000.0)
        self.assertEqual(plan.after(20), 1)


class AloneTest(tf.test.TestCase):
    """One process whose replicas take equally many steps."""

    @pytest.mark.slow
    def test_rounds_of_one_step_equal_exchanges_in_every_step(self):
        """`fit` does not time its first step, so each of these calls makes a round."""
        models = []
        for options in ({"sync_every": 1}, {"sync_seconds": 100.0}):
            model = trained(
                lambda options=options: DiLoCo(adamw(), outer=nesterov(), **options),
                2,
                fit={"epochs": 1},
                num_examples=12,
            )
            for _ in range(3):
                model.fit(*data(12), batch_size=12, verbose=0)
            models.append(model)
        for weight, other in zip(models[0].weights, models[1].weights, strict=True):
            self.assertAllEqual(weight, other, msg=weight.path)

    def test_rounds_grow_gradually(self):
        exchanges = Exchanges()
        model = trained(
            lambda: DiLoCo("sgd", sync_seconds=1000.0), 2, fit={"epochs": 1}, num_examples=12
        )
        x, y = data(48)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(12)
        model.fit(dataset, steps_per_epoch=50, verbose=0, callbacks=[exchanges])
        # A round is at most four times as long as the one before.
        self.assertEqual(exchanges.steps, [1, 2, 6, 22])
        optimizer = model.optimizer
        self.assertEqual(optimizer.steps_since_exchange, 0)
        self.assertEqual(int(optimizer.iterations.numpy()), 51)
        self.assertEqual(optimizer.num_own_steps, 51)

    def test_each_step_exchanges_if_there_is_no_time(self):
        exchanges = Exchanges()
        synchronous = trained(lambda: SGD(0.1), 2)
        local = trained(
            lambda: DiLoCo(SGD(0.1), sync_seconds=1e-9, outer=SGD(1.0)),
            2,
            fit={"callbacks": [exchanges]},
        )
        self.assertEqual(exchanges.steps, 3 * [1, 2, 3, 4])
        for weight, other in zip(synchronous.weights, local.weights, strict=True):
            self.assertAllClose(weight, other, rtol=2e-5, atol=2e-6)

    def test_a_moving_average_forgets_by_steps(self):
        model = trained(
            lambda: DiLoCo(
                SGD(0.1), sync_seconds=1e9, outer=SGD(1.0, use_ema=True, ema_momentum=0.9)
            ),
            2,
            fit={"epochs": 1, "callbacks": [seen := Seen()]},
            num_examples=12 * 6,
        )
        # Exchanges after 1, 1 and 4 steps; Keras' average begins with the first.
        average = seen.weights[0]
        for weights, steps in zip(seen.weights[1:], (1, 4), strict=True):
            average = 0.9**steps * average + (1 - 0.9**steps) * weights
        self.assertAllClose(model.get_weights()[0], average, rtol=1e-5, atol=1e-6)

    @pytest.mark.slow
    def test_a_run_saved_within_a_round_continues_it(self):
        def compiled():
            strategy = terngrad_tf.TernGradStrategy(num_nodes=2)
            with strategy.scope():
                model = network()
                model.compile(DiLoCo(adamw(), sync_seconds=1e9), "mse")
                model.optimizer.build(model.trainable_variables)
            checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
            return model, checkpoint

        x, y = data(48)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(12)
        model, checkpoint = compiled()
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/saved"
            save = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda batch, logs: checkpoint.write(path) if batch == 3 else ""
            )
            model.fit(dataset, steps_per_epoch=6, verbose=0, callbacks=[save])
            resumed, checkpoint = compiled()
            checkpoint.read(path).assert_existing_objects_matched()
        exchanges = Exchanges()
        resumed.fit(dataset.skip(4), steps_per_epoch=2, verbose=0, callbacks=[exchanges])
        # The third round, of four steps, had taken two.
        self.assertEqual(exchanges.steps, [2])
        for weight, other in zip(model.weights, resumed.weights, strict=True):
            self.assertAllEqual(weight, other, msg=weight.path)


class Seen(keras.callbacks.Callback):
    """Records the weights after each exchange."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def on_train_batch_end(self, batch, logs=None):
        if not self.model.optimizer.steps_since_exchange:
            self.weights.append(self.model.get_weights()[0])


@pytest.mark.long
class ProcessesTest(tf.test.TestCase):
    """Two processes of one replica each; the second takes longer for a step."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = processes.run(
            WORKER,
            2,
            runs.class_folder(cls),
            jobs={
                "float": {"grad_bits": 32},
                "ternary": {"grad_bits": 1},
                "executions": {"grad_bits": 1, "steps_per_execution": 3},
                "refused": {},
            },
        )

    def test_processes_take_unequal_numbers_of_steps(self):
        """Timing decides which one takes more."""
        for job in ("float", "ternary"):
            quick, slow = (int(result[job]["own"][-1]) for result in self.results)
            self.assertNotEqual(quick, slow)
            # A step of `fit` stands for one step of each on average; plans are whole numbers.
            num_exchanges = np.count_nonzero(self.results[0][job]["since_exchange"] == 0)
            self.assertLess(abs(quick + slow - 600) / 2, num_exchanges + 60)

    def test_several_steps_an_execution(self):
        quick, slow = (result["executions"] for result in self.results)
        self.assertNotEqual(int(quick["own"][-1]), int(slow["own"][-1]))
        self.assertLen(quick["own"], 2 * 150 // 3)
        self.assertLess(np.count_nonzero(quick["since_exchange"]), len(quick["own"]))
        self.assertLess(quick["epoch_losses"][-1], quick["epoch_losses"][0])

    def test_changes_count_by_examples(self):
        results = [result["float"] for result in self.results]
        since_exchange = results[0]["since_exchange"]
        is_exchange = since_exchange == 0
        # Callbacks run before the exchange at the end of an epoch.
        is_exchange[149::150] = True
        weights = expected([result["own"] for result in results], is_exchange)
        seen = results[0]["seen"]
        inside = np.arange(300) % 150 != 149
        self.assertAllClose(seen[inside], weights[inside], rtol=1e-5, atol=1e-5)
        self.assertAllClose(results[0]["weights"], weights[-1], rtol=1e-5, atol=1e-5)

    def test_both_see_the_same(self):
        first, second = self.results
        for job in ("float", "ternary", "executions"):
            for name in first[job].keys() - {"own"}:
                self.assertAllEqual(first[job][name], second[job][name], msg=name)

    def test_finite_data_are_refused(self):
        for result in self.results:
            self.assertIn("data that end", str(result["refused"]["message"]))


class ErrorsTest(parameterized.TestCase, tf.test.TestCase):
    """Refused options and calls."""

    @parameterized.parameters(
        ({"sync_seconds": 0}, "`sync_seconds` must be a positive number. Received: .*=0"),
        ({"sync_seconds": True}, "`sync_seconds` must be a positive number"),
        ({"sync_seconds": float("nan")}, "`sync_seconds` must be a positive number"),
        ({"sync_every": 32}, "`sync_every` must not go with `sync_seconds`. Received: .*=32"),
        ({"fragments": 2}, "`fragments` must be 1 with `sync_seconds`"),
        ({"overlap": 1}, "`overlap` must be 0 with `sync_seconds`"),
        ({"inner": SGD(0.1, gradient_accumulation_steps=2)}, "`inner` must have no gradient_acc"),
    )
    def test_options(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            DiLoCo(**{"inner": "sgd", "sync_seconds": 1.0, **options})

    def test_needs_fit(self):
        with self.assertRaisesRegex(ValueError, "must go with `model.fit`"):
            step_outside_of_fit(lambda: DiLoCo("sgd", sync_seconds=1.0))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

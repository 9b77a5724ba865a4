"""`DiLoCo` with `sync_every="auto"`, compared with exchanges at fixed steps."""

import pathlib
import sys
import tempfile

import keras
import pytest
import tensorflow as tf
from absl.testing import parameterized

import terngrad_tf
from terngrad_tf import DiLoCo
from terngrad_tf.distribute.local_sgd.measured_steps import (
    PERIODS,
    agreed_seconds,
    expected_seconds,
)
from terngrad_tf.distribute.wire_selection.exchange_model import nearly_quickest
from tests import runs
from tests.distribute import processes
from tests.distribute.local_sgd.local_steps_cases import (
    Exchanges,
    ResumeCases,
    adamw,
    data,
    network,
    step_outside_of_fit,
)

WORKER = pathlib.Path(__file__).with_name("measured_steps_worker.py")
SGD = keras.optimizers.SGD


def examples():
    return tf.data.Dataset.from_tensor_slices(data(48)).repeat().batch(12)


def compiled(sync_every, num_nodes=2, **options):
    """A model and its optimizer."""
    strategy = terngrad_tf.TernGradStrategy(num_nodes=num_nodes)
    with strategy.scope():
        model = network()
        optimizer = DiLoCo(adamw(), sync_every, outer=SGD(1.0))
        model.compile(optimizer, "mse", **options)
    return model, optimizer


def fit(sync_every, exchanges, **options):
    """A model after 50 steps."""
    model, _ = compiled(sync_every, **options)
    model.fit(examples(), steps_per_epoch=50, verbose=0, callbacks=[exchanges])
    return model


class ChoiceTest(parameterized.TestCase, tf.test.TestCase):
    """Choice of the number of steps by their durations."""

    @parameterized.parameters((0.0, 1), (0.1, 1), (0.11, 2), (1.0, 8), (3.0, 16), (1e3, 32))
    def test_fewest_steps_that_are_nearly_as_quick(self, exchange, expected):
        seconds = expected_seconds(1.0, exchange)
        self.assertEqual(nearly_quickest(seconds), expected)
        self.assertEqual(list(seconds), list(PERIODS))
        self.assertLessEqual(seconds[expected], 1.1 * seconds[32])

    @parameterized.named_parameters(
        ("processes_are_alike", [5.0, 5.0], [2.0, 2.0], (5.0, 2.0)),
        ("one_computes_longer_and_the_other_waits", [50.0, 10.0], [20.0, 100.0], (50.0, 20.0)),
        ("one_receives_slowly_and_the_other_goes_on", [12.0, 12.0], [250.0, 11.0], (12.0, 250.0)),
        ("steps_vary", [12.0, 13.0], [4.0, 3.0], (13.0, 3.0)),
    )
    def test_no_wait_counts_as_an_exchange_if(self, steps, exchanges, expected):
        self.assertEqual(agreed_seconds(steps, exchanges, 2), expected)


class AloneTest(ResumeCases, parameterized.TestCase, tf.test.TestCase):
    """One process with two replicas."""

    @pytest.mark.slow
    def test_numbers_equal_those_with_exchanges_after_the_same_steps(self):
        self.check_numbers(1)

    @parameterized.parameters((5, 2), (1, 1), (1, 4))
    @pytest.mark.long
    def test_numbers_of_several_steps_an_execution_and_other_replicas(self, steps, num_nodes):
        self.check_numbers(steps, num_nodes)

    def check_numbers(self, steps_per_execution, num_nodes=2):
        options = {"steps_per_execution": steps_per_execution, "num_nodes": num_nodes}
        exchanges = Exchanges()
        model = fit("auto", exchanges, **options)
        period = model.optimizer.steps_of_round
        self.assertIn(period, PERIODS)
        # The first three exchanges measure, each after 2 steps or an execution of 5.
        first = max(2, steps_per_execution)
        every = -(-period // steps_per_execution) * steps_per_execution
        due = [first, 2 * first, 3 * first, *range(3 * first + every, 51, every)]
        self.assertEqual(exchanges.steps, [step for step in due if step <= 50])
        other = fit(1000, Exchanges(due), **options)
        for weight, same in zip(model.weights, other.weights, strict=True):
            self.assertAllEqual(weight, same, msg=weight.path)

    @pytest.mark.slow
    def test_a_saved_run_keeps_its_number_of_steps(self):
        model, _ = compiled("auto")
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/saved"
            checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
            save = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda batch, logs: checkpoint.write(path) if batch == 20 else ""
            )
            model.fit(examples(), steps_per_epoch=50, verbose=0, callbacks=[save])
            resumed, optimizer = compiled("auto")
            optimizer.build(resumed.trainable_variables)
            checkpoint = tf.train.Checkpoint(model=resumed, optimizer=optimizer)
            checkpoint.read(path).assert_existing_objects_matched()
        resumed.fit(examples().skip(21), steps_per_epoch=29, verbose=0)
        self.assertEqual(optimizer.steps_of_round, model.optimizer.steps_of_round)
        self.assert_same_state(model, resumed)

    def test_a_configuration_keeps_auto(self):
        optimizer = DiLoCo("sgd", "auto")
        self.assertEqual(optimizer.outer.momentum, 0.0)
        self.assertEqual(DiLoCo.from_config(optimizer.get_config()).sync_every, "auto")


@pytest.mark.long
class ProcessesTest(tf.test.TestCase):
    """Two processes, each of which takes its own steps."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = processes.run(
            WORKER,
            2,
            runs.class_folder(cls),
            jobs={"auto": {"grad_bits": "auto"}, "ternary": {"grad_bits": 1}},
        )

    def test_both_take_the_same_number_and_see_the_same(self):
        first, second = self.results
        for job in ("auto", "ternary"):
            self.assertIn(int(first[job]["period"]), PERIODS)
            for name in first[job]:
                self.assertAllEqual(first[job][name], second[job][name], msg=name)
            self.assertLess(first[job]["losses"][-1], first[job]["losses"][0])
            self.assertAllEqual(first[job]["weights"], first[job]["weights_by_hand"])


class ErrorsTest(parameterized.TestCase, tf.test.TestCase):
    """Refused options and calls."""

    @parameterized.parameters(
        ({"sync_every": "often"}, '`sync_every` must be a positive integer or "auto"'),
        ({"fragments": 2}, '`fragments` must be 1 with sync_every="auto". Received: .*=2'),
        ({"overlap": 1}, '`overlap` must be 0 with sync_every="auto". Received: .*=1'),
        ({"sync_seconds": 1.0}, "`sync_every` must not go with `sync_seconds`"),
    )
    def test_options(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            DiLoCo(**{"inner": "sgd", "sync_every": "auto", **options})

    def test_needs_fit(self):
        with self.assertRaisesRegex(ValueError, 'sync_every="auto" must go with `model.fit`'):
            step_outside_of_fit(lambda: DiLoCo("sgd", "auto"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

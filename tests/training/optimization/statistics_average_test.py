"""Averages of batch norm's statistics follow the rule for weights, and evaluation uses them."""

import contextlib
import io
import itertools
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf import models, training
from terngrad_tf.checkpoints import local_state
from terngrad_tf.distribute import StepAgreement, TernGradStrategy, local_steps_optimizer
from terngrad_tf.training.evaluation import evaluator
from terngrad_tf.training.logs import triggers
from terngrad_tf.training.optimization import optimizers
from terngrad_tf.training.optimization.statistics_average import StatisticsAverage
from terngrad_tf.training.runs import saving
from terngrad_tf.training.storage.run_folder import read_run
from tests import runs

EXAMPLES, BATCH = 128, 8
_SKIPPED = 2, 4
_NOT_SKIPPED = [step for step in range(EXAMPLES // BATCH) if step not in _SKIPPED]


class Record(keras.callbacks.Callback):
    """Records variables after each step, and the optimizer's number of updates."""

    def __init__(self, variables):
        super().__init__()
        self.variables, self.found = variables, []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append([variable.numpy() for variable in self.variables])


def moving_average(values, limit, updates=1):
    """Averages values, one in `updates`, by the rule of `tf.train.ExponentialMovingAverage`."""
    average = np.asarray(values[0], np.float64)
    for n, value in enumerate(values[1:], 1):
        m = min(limit, (1 + n) / (10 + n)) ** updates
        average = m * average + (1 - m) * value
    return average


class StatisticsAverageTest(tf.test.TestCase):
    def trained(self, num_nodes, make_optimizer, sample_weight=None, save_iter=0):
        """Trains with batch norm; returns (optimizer, statistics after each step, average).

        With `save_iter`, steps are followed as if the run were saved.
        """
        keras.utils.set_random_seed(1)
        strategy = TernGradStrategy(num_nodes=num_nodes)
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.Input([4, 4, 2]),
                    keras.layers.Conv2D(3, 3),
                    keras.layers.BatchNormalization(momentum=0.7),
                    keras.Sequential(
                        [keras.layers.Conv2D(2, 2), keras.layers.BatchNormalization(momentum=0.5)]
                    ),
                    keras.layers.Flatten(),
                    keras.layers.Dense(3),
                ]
            )
            optimizer = make_optimizer()
            optimizer.build(model.trainable_variables)
            local_state.keep_statistics(optimizer, model)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss)
            average = StatisticsAverage(model)
        generator = np.random.default_rng(0)
        x = generator.normal(size=[EXAMPLES, 4, 4, 2]).astype("float32") * 3 + 1
        y = generator.integers(0, 3, EXAMPLES)
        record, update = Record(average.statistics), average.callback(0)
        called = [record, update]
        with StepAgreement(strategy, 0) as agreement:
            if save_iter:
                run = types.SimpleNamespace(
                    strategy=strategy,
                    first_step=0,
                    config=types.SimpleNamespace(max_steps=EXAMPLES // BATCH),
                    manager=None,
                    shared=average.variables,
                    membership=None,
                )
                schedule = saving.Schedule(triggers.every_steps(save_iter))
                saver = saving.SaveCheckpoints(run, schedule, agreement, exchanged=update.follow)
                called.append(saver)
            model.fit(
                *(x, y),
                sample_weight=sample_weight,
                batch_size=BATCH,
                shuffle=False,
                verbose=0,
                callbacks=called,
            )
        return optimizer, record.found, average

    def assert_average(self, average, values, limit=optimizers.EMA_MOMENTUM, updates=1):
        self.assertLen(average.variables, 4)
        for i, variable in enumerate(average.variables):
            expected = moving_average([found[i] for found in values], limit, updates)
            self.assertAllClose(variable.numpy(), expected, rtol=1e-5)
            self.assertNotAllClose(variable.numpy(), values[-1][i], rtol=1e-3)

    @pytest.mark.slow
    def test_averages_equal_those_computed_by_hand(self):
        self.check_averages(2, "adam")

    @pytest.mark.slow
    def test_averages_with_other_replicas_equal_those_computed_by_hand(self):
        for num_nodes, name in ((1, "momentum"), (4, "rmsprop")):
            self.check_averages(num_nodes, name)

    def check_averages(self, num_nodes, name):
        make = lambda: optimizers.build_optimizer(name, 0.05)  # noqa: E731
        _, values, average = self.trained(num_nodes, make)
        self.assertLen(values, EXAMPLES // BATCH)
        self.assert_average(average, values)

    @pytest.mark.slow
    def test_steps_that_loss_scaling_leaves_out_do_not_count(self):
        optimizer, values = self.check_skipped(
            lambda: optimizers.build_optimizer("momentum", 0.05), taken=_NOT_SKIPPED
        )
        self.assertEqual(int(optimizer.inner_optimizer.iterations.numpy()), len(values) - 2)

    @pytest.mark.slow
    def test_local_steps_that_loss_scaling_leaves_out_delay_an_exchange(self):
        def make():
            inner = optimizers.build_optimizer("gd", 0.05, averages=False)
            return optimizers.build_local_steps(inner, 4, 1, 1.0, 0.0)

        self.check_skipped(make, taken=_NOT_SKIPPED[3::4], limit=optimizers.EMA_MOMENTUM**4)

    def check_skipped(self, make, taken, **options):
        # The third and the fifth step overflow.
        weights = np.ones(EXAMPLES, np.float32)
        for step in _SKIPPED:
            weights[step * BATCH] = np.inf
        scaled = lambda: keras.optimizers.LossScaleOptimizer(make(), initial_scale=2.0)  # noqa: E731
        optimizer, values, average = self.trained(2, scaled, weights)
        self.assert_average(average, [values[step] for step in taken], **options)
        return optimizer, values

    @pytest.mark.long
    def test_local_steps_average_statistics_after_exchanges(self):
        self.check_local_steps()
        self.check_local_steps(overlap=1)

    @pytest.mark.slow
    def test_statistics_forget_as_weights_do_in_exchanges_of_fragments(self):
        # An exchange of either half of the weights moves the averages of all.
        self.check_local_steps(fragments=2)

    @pytest.mark.slow
    def test_statistics_count_after_exchanges_by_time_and_those_before_saving(self):
        def make():
            inner = optimizers.build_optimizer("gd", 0.05, averages=False)
            return optimizers.build_local_steps(inner, None, 1, 1.0, 0.0, sync_seconds=1e9)

        _, values, average = self.trained(2, make, save_iter=3)
        # The first rounds have 1, 1 and 4 steps, of which saving ends the third.
        after = (1, 2, 3, 6, 9, 12, 15, 16)
        for i, variable in enumerate(average.variables):
            expected = np.asarray(values[0][i], np.float64)
            for n, (begin, end) in enumerate(itertools.pairwise(after), 1):
                m = min(optimizers.EMA_MOMENTUM ** (end - begin), (1 + n) / (10 + n))
                expected = m * expected + (1 - m) * values[end - 1][i]
            self.assertAllClose(variable.numpy(), expected, rtol=1e-5)

    def check_local_steps(self, fragments=1, overlap=0):
        def make():
            inner = optimizers.build_optimizer("gd", 0.05, averages=False)
            return optimizers.build_local_steps(inner, 4, fragments, 1.0, 0.0, overlap=overlap)

        optimizer, values, average = self.trained(2, make)
        limit = local_steps_optimizer(optimizer).outer.get_config()["ema_momentum"]
        self.assertLess(limit, optimizers.EMA_MOMENTUM)
        self.assert_average(average, values[3 + overlap :: 4], limit, fragments)

    def test_networks_without_batch_norm_have_no_average(self):
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        average = StatisticsAverage(model)
        self.assertIsNone(average.callback(0))
        self.assertEqual(average.variables, [])


class RunTest(tf.test.TestCase):
    @pytest.mark.long
    def test_a_run_resumes_its_averages_and_is_evaluated_with_them(self):
        root = runs.class_folder(type(self))
        slim_data.convert("digits", str(root / "data"), shard=True, train_shards=2)

        def train(name, max_steps):
            options = training.TrainConfig.of(
                train_dir=str(root / name),
                data_dir=str(root / "data"),
                dataset_name="digits",
                net="resnet_20",
                num_nodes=2,
                batch_size=16,
                max_steps=max_steps,
                save_iter=1,
                max_to_keep=100,
                learning_rate_decay_type="fixed",
                initial_learning_rate=0.1,
            )
            with contextlib.redirect_stdout(io.StringIO()):
                return training.train(options)

        train("parts", 3)
        train("parts", 6)
        path = train("whole", 6).checkpoint
        whole, parts = runs.saved(path), runs.saved(root / "parts" / "model.ckpt-6")
        self.assertEqual(whole.keys(), parts.keys())
        for name in whole:
            self.assertAllEqual(whole[name], parts[name], msg=name)
        # Computed by hand, from the statistics in the checkpoints of all steps.
        model = models.build("resnet_20", num_classes=10, image_size=28, channels=1)
        average = StatisticsAverage(model)
        found = []
        for step in range(1, 7):
            checkpoint = str(root / "whole" / f"model.ckpt-{step}")
            tf.train.Checkpoint(model=model).restore(checkpoint).expect_partial()
            found.append([variable.numpy() for variable in average.statistics])
        restored, _ = evaluator.restore_network(path, read_run(root / "whole"), True)
        evaluated = StatisticsAverage(restored).statistics
        self.assertLen(evaluated, 2 * 19)
        for i, variable in enumerate(evaluated):
            expected = moving_average([values[i] for values in found], optimizers.EMA_MOMENTUM)
            self.assertAllClose(variable.numpy(), expected, rtol=1e-4, atol=1e-6)
        raw, _ = evaluator.restore_network(path, read_run(root / "whole"), False)
        for variable, value in zip(StatisticsAverage(raw).statistics, found[-1], strict=True):
            self.assertAllEqual(variable.numpy(), value)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

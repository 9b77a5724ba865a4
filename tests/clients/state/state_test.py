"""States that steps write: equal to one replica's, or refused in one line."""

import functools
import inspect
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy
from tests.clients.comparison import numbers
from tests.clients.state import state_cases as cases


def strategy_of(num_replicas):
    return TernGradStrategy(num_replicas, grad_bits=32)


class _StateTest(tf.test.TestCase, parameterized.TestCase):
    def assert_same(self, layer, num_replicas, count=24, **options):
        expected = cases.train(tf.distribute.get_strategy(), layer, count, **options)
        got = cases.train(strategy_of(num_replicas), layer, count, **options)
        self.assertNotEmpty(expected)
        self.assertEqual(set(got), set(expected))
        for name, value in expected.items():
            self.assertAllClose(got[name], value, rtol=1e-5, atol=1e-5, msg=name)


class StatedTest(_StateTest):
    @parameterized.parameters("count", "masked mean", "teacher")
    @pytest.mark.default_cases(1)
    def test_four_replicas_some_without_examples(self, name):
        self.assert_same(cases.EQUAL[name], 4, count=17)

    @parameterized.parameters((2, 17))
    @pytest.mark.slow
    def test_all_on_batches_of_other_lengths(self, num_replicas, count):
        self.check_all(num_replicas, count)

    @parameterized.parameters(
        *((1, 24), (1, 21), (1, 17), (2, 24), (2, 21), (4, 24), (4, 21), (4, 17))
    )
    @pytest.mark.long
    def test_all_on_further_batches(self, num_replicas, count):
        self.check_all(num_replicas, count)

    def check_all(self, num_replicas, count):
        for name, layer in cases.EQUAL.items():
            # Reductions by the step itself include the zeros of padded replicas.
            if count != 17 or not name.startswith(("gathered", "reduced")):
                with self.subTest(case=name):
                    self.assert_same(layer, num_replicas, count)

    @parameterized.parameters(2, 4)
    @pytest.mark.default_cases(1)
    def test_queues_of_gathered_keys(self, num_replicas):
        for layer in cases.IN_ORDER.values():
            self.assert_same(layer, num_replicas)

    def test_the_first_replicas_queue_keeps_unit_vectors(self):
        for layer in cases.FIRST:
            results = cases.train(strategy_of(4), layer)
            if "queue" in results:
                lengths = np.linalg.norm(results["queue"], axis=-1)
                self.assertAllClose(lengths[:6], np.ones(6), atol=2e-3)
            else:
                self.assertEqual(results["state"], 6)

    def test_equal_values_of_replicas_are_summed(self):
        class Constant(cases.stated(cases.Count, "sum")):
            def update(self, x):
                self.state.assign_add(2.0)

        self.assertEqual(cases.train(strategy_of(2), Constant)["state"], 3 * 2 * 2.0)

    def test_variables_of_tensorflow(self):
        strategy = strategy_of(4)
        with strategy.scope():
            total, mean, first = (
                tf.Variable(1.0, trainable=False, aggregation=aggregation)
                for aggregation in (
                    tf.VariableAggregation.SUM,
                    tf.VariableAggregation.MEAN,
                    tf.VariableAggregation.ONLY_FIRST_REPLICA,
                )
            )

        def replica(x):
            for variable in (total, mean, first):
                variable.assign_add(x)

        x = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
        )

        def run_eagerly():
            strategy.run(replica, (x,))

        for run in (tf.function(run_eagerly), run_eagerly):
            for variable in (total, mean, first):
                variable.assign(1.0)
            run()
            self.assertAllClose([total, mean, first], [11.0, 3.5, 2.0])


class NotStatedTest(_StateTest):
    @parameterized.parameters(*cases.REFUSED)
    @pytest.mark.default_cases(4)
    def test_other_values_than_means_are_refused_in_one_line(self, layer):
        name = next(iter(layer.shapes))
        line = rf"The variable '[^']*/{name}', which is not trained, .*make the variable with"
        with self.assertRaisesRegex(ValueError, line):
            cases.train(strategy_of(2), layer)

    def test_one_replica_may_write_anything(self):
        self.assert_same(cases.Queue, 1)

    def test_means_and_equal_values_need_no_aggregation(self):
        for layer in (cases.Normalizing, cases.MaskedMean, cases.Steps):
            self.assert_same(layer, 2)

    @pytest.mark.slow
    def test_code_that_runs_eagerly_warns(self):
        with self.assertWarnsRegex(UserWarning, "queue, which all replace by their mean"):
            cases.train(strategy_of(2), cases.Queue, 8, run_eagerly=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*replace by their mean")
            self.assert_same(cases.Teacher, 2, 8, run_eagerly=True)
            self.assert_same(keras.layers.BatchNormalization, 1, 8, run_eagerly=True)
            cases.train(strategy_of(2), keras.layers.BatchNormalization, 8, run_eagerly=True)


class Adversaries(keras.Model):
    """Both passes of a step update the same averages."""

    def __init__(self):
        super().__init__()
        self.norm, self.dense = cases.Normalizing(), keras.layers.Dense(1)

    def call(self, x, training=False):
        return self.dense(self.norm(x, training=training))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        other = self(2 * x, training=training)
        return super().compute_loss(x, y, y_pred + other, sample_weight)


def masked_batch_norm():
    return keras.Sequential([keras.layers.Masking(), keras.layers.BatchNormalization()])


class KerasLayersTest(_StateTest):
    """All Keras layers with a state that is not trained."""

    def train_model(self, strategy, make, *shape):
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = make()
            model.compile(keras.optimizers.SGD(0.05), "mse")
        data = (numbers(16, *shape, 3), numbers(16, *shape, 1, seed=1))
        data = tf.data.Dataset.from_tensor_slices(data)
        model.fit(data.batch(8), verbose=0)
        return {variable.path: variable.numpy() for variable in model.variables}

    @parameterized.named_parameters(
        ("batch_norm", keras.layers.BatchNormalization),
        ("without_momentum", lambda: keras.layers.BatchNormalization(momentum=0.0)),
        # Keras releases after 3.12 have this option.
        *(
            [("renormalized", lambda: keras.layers.BatchNormalization(renorm=True))]
            if "renorm" in inspect.signature(keras.layers.BatchNormalization).parameters
            else []
        ),
        ("masked", masked_batch_norm),
        ("spectral", lambda: keras.layers.SpectralNormalization(keras.layers.Dense(3))),
        ("dropout", lambda: keras.layers.Dropout(0.5)),
        ("noise", lambda: keras.layers.GaussianNoise(0.1)),
        ("recurrent", lambda: keras.layers.LSTM(2, dropout=0.3, return_sequences=True)),
    )
    def test_layers_of_keras_with_a_state_train(self, make):
        results = self.train_model(
            strategy_of(2),
            lambda: keras.Sequential([keras.layers.Input((4, 3)), make(), keras.layers.Dense(1)]),
            4,
        )
        for name, value in results.items():
            self.assertAllEqual(np.isfinite(value), np.ones_like(value, bool), name)

    def test_batch_norm_and_spectral_norm_equal_those_of_the_batch(self):
        def make():
            return keras.Sequential(
                [
                    keras.layers.Input((4, 3)),
                    keras.layers.SpectralNormalization(keras.layers.Dense(3)),
                    keras.layers.BatchNormalization(synchronized=True),
                    keras.layers.Dense(1),
                ]
            )

        expected = self.train_model(tf.distribute.get_strategy(), make, 4)
        for count in (2, 4):
            got = self.train_model(strategy_of(count), make, 4)
            for name, value in expected.items():
                self.assertAllClose(got[name], value, rtol=1e-4, atol=1e-5, msg=name)

    @parameterized.parameters("fit", "evaluate", "predict")
    @pytest.mark.default_cases(1)
    def test_recurrent_states_of_examples_are_refused_in_one_line(self, use):
        x, y = numbers(8, 4, 3), numbers(8, 1)
        for count in (1, 2):
            strategy = strategy_of(count)
            with strategy.scope():
                inputs = keras.Input(batch_shape=(8, 4, 3))
                state = keras.layers.Bidirectional(keras.layers.GRU(2, stateful=True))(inputs)
                model = keras.Model(inputs, keras.layers.Dense(1)(state))
                model.compile("sgd", "mse")
            call = functools.partial(
                getattr(model, use), x, *([] if use == "predict" else [y]), batch_size=8, verbose=0
            )
            if count == 1:
                call()
                continue
            line = r"recurrent layer with `stateful=True` keeps .*layer='forward_gru.*replicas=2"
            with self.assertRaisesRegex(ValueError, line):
                call()

    def test_a_model_that_writes_twice_in_a_step(self):
        expected = self.train_model(tf.distribute.get_strategy(), Adversaries)
        got = self.train_model(strategy_of(2), Adversaries)
        for name, value in expected.items():
            self.assertAllClose(got[name], value, rtol=1e-4, atol=1e-5, msg=name)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

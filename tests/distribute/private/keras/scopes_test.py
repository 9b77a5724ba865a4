"""Tests of models, optimizers and metrics made outside the strategy's scope."""

import contextlib
import os
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy

X, Y = np.ones((8, 2), np.float32), np.ones(8, np.float32)
RULE = (
    r"was (built|made) outside of the scope of the strategy\. Build .* inside `with strategy\.scope"
)


def build(*first):
    return keras.Sequential([*(first or [keras.Input([2])]), keras.layers.Dense(1)])


class ScopesTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.strategy = TernGradStrategy(2)

    def fitted(self, model):
        model.fit(X, Y, batch_size=8, verbose=0)
        return model

    def test_a_model_built_outside_is_refused_by_compile(self):
        for model in (build(), keras.Sequential([keras.layers.Dense(1)])):
            with self.strategy.scope(), self.assertRaisesRegex(ValueError, f"The model {RULE}"):
                model.compile("sgd", "mse")

    def test_a_compiled_model_is_refused_in_the_scope(self):
        model = build()
        model.compile("sgd", "mse")
        with self.strategy.scope():
            for use in (model.fit, model.train_on_batch, model.evaluate):
                with self.assertRaisesRegex(ValueError, f"The model {RULE}"):
                    use(X, Y)

    def test_a_part_built_outside_is_refused_if_trainable_and_used_if_frozen(self):
        part = build()
        for trainable in (True, False):
            part.trainable = trainable
            with self.strategy.scope():
                model = build(part)
                model.compile("sgd", "mse")
            if trainable:
                with self.assertRaisesRegex(ValueError, f"The model's variable 'kernel' {RULE}"):
                    self.fitted(model)
            else:
                self.fitted(model)

    def test_weights_made_outside_are_refused_by_apply(self):
        for num_nodes in (1, 2):
            weights = [tf.Variable([1.0], name="outside"), keras.Variable([1.0], name="outside")]
            strategy = TernGradStrategy(num_nodes)
            with strategy.scope():
                optimizer = keras.optimizers.SGD()
            for weight in weights:
                step = tf.function(lambda w=weight, o=optimizer: o.apply([tf.ones([1])], [w]))
                with self.assertRaisesRegex(ValueError, f"model's variable 'outside(:0)?' {RULE}"):
                    strategy.run(step)

    def test_the_step_of_a_loop_outside_of_run_is_refused(self):
        def loop(strategy):
            with strategy.scope():
                model, optimizer = build(), keras.optimizers.Adam()

            def step():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(model(X) - Y))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply(gradients, model.trainable_variables)

            return step

        rule = r"must be run by `strategy\.run\(step, args=\.\.\.\)`"
        for num_nodes in (1, 2):
            strategy = TernGradStrategy(num_nodes)
            for wrap in (lambda step: step, tf.function):
                with self.assertRaisesRegex(ValueError, rule):
                    wrap(loop(strategy))()
                with strategy.scope(), self.assertRaisesRegex(ValueError, rule):
                    wrap(loop(strategy))()

    @parameterized.parameters(False, True)
    def test_an_update_outside_of_run_is_refused(self, is_built):
        with self.strategy.scope():
            weight, optimizer = keras.Variable([1.0]), keras.optimizers.SGD()
            if is_built:
                optimizer.build([weight])
        other, gradient = keras.optimizers.SGD(), tf.ones([1])
        rule = r"`strategy\.run\(step, args|was made outside of the scope"
        updates = [
            lambda: optimizer.apply([gradient], [weight]),
            lambda: optimizer.apply_gradients([(gradient, weight)]),
            lambda: other.apply([gradient], [weight]),
        ]
        if is_built:
            updates.append(lambda: optimizer.apply([gradient]))
        for update in updates:
            for compiled in (update, tf.function(update)):
                for context in (contextlib.nullcontext(), self.strategy.scope()):
                    with context, self.assertRaisesRegex(ValueError, rule):
                        compiled()
        self.assertAllEqual(weight, [1.0])

    def test_optimizers_of_keras_2_and_of_tensorflow_1_are_refused(self):
        with self.strategy.scope():
            variable = tf.Variable([1.0])
            optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)

        def update_of_keras_2(strategy):
            del strategy

        update_of_keras_2.__module__ = "tf_keras.src.optimizers.optimizer"
        steps = (
            lambda: optimizer.apply_gradients([(tf.ones([1]), variable)]),
            lambda: tf.distribute.get_replica_context().merge_call(update_of_keras_2),
        )
        for step in steps:
            for compiled in (step, tf.function(step)):
                with self.assertRaisesRegex(ValueError, "The optimizer must be one of Keras 3"):
                    self.strategy.run(compiled)
        self.assertAllEqual(variable, [1.0])

    def test_an_optimizer_or_a_metric_made_outside_is_refused(self):
        optimizer, metric = keras.optimizers.Adam(), keras.metrics.MeanAbsoluteError()
        with self.strategy.scope():
            model = build()
            with self.assertRaisesRegex(ValueError, f"The optimizer's variable .* {RULE}"):
                model.compile(optimizer, "mse")
            model.compile("adam", "mse", metrics=[metric])
        for use in (self.fitted, lambda model: model.evaluate(X, Y, verbose=0)):
            with self.assertRaisesRegex(ValueError, f"The metric's variable 'total' {RULE}"):
                use(model)

    def test_compile_may_be_called_outside_the_scope(self):
        with self.strategy.scope():
            model = build()
        model.compile("adam", "mse", metrics=["mae"])
        self.assertEqual(self.fitted(model).optimizer.iterations.numpy(), 1)
        self.assertIsNotNone(self.strategy.traffic)

    def test_a_model_without_strategy_warns_once_if_the_strategy_is_unused(self):
        model = build()
        model.compile("sgd", "mse")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.fitted(self.fitted(model))
        (message,) = [str(one.message) for one in caught if "TernGradStrategy" in str(one.message)]
        self.assertRegex(message, "^This model is used without .* inside `with strategy.scope")

    @pytest.mark.slow
    def test_copies_made_outside_warn_until_something_is_trained_under_the_strategy(self):
        with self.strategy.scope():
            model = build()
            model.compile("sgd", "mse")
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        for copy in (
            lambda: keras.models.clone_model(model),
            lambda: keras.Sequential.from_config(model.get_config()),
            lambda: keras.models.load_model(path),
        ):
            copied, strategy = copy(), TernGradStrategy(2)
            copied.compile("sgd", "mse")
            with strategy.scope():
                build()
            with self.assertWarnsRegex(UserWarning, "or the copy that was cloned or loaded, was"):
                self.fitted(copied)
        self.fitted(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.fitted(copied)

    def test_other_strategies_are_left_alone(self):
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            model = build()
        model.compile("sgd", "mse")
        self.fitted(model)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

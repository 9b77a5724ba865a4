"""Losses, and what is shown of them, are the same as without a strategy."""

import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from keras import layers

from terngrad_tf.distribute import TernGradStrategy
from tests.clients.comparison import ClientTest, assert_close, fit, numbers, weights
from tests.clients.losses import masked_cases


class OwnStep(keras.Model):
    """Trains on a sum of Keras' losses, and shows losses in many ways."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)
        self.squares = keras.losses.MeanSquaredError()
        self.tracked = keras.metrics.Mean(name="tracked")

    @property
    def metrics(self):
        return [self.tracked]

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            first = self.compute_loss(x, y, outputs)
            second = self.squares(y, outputs)
            loss = first + 0.5 * second
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.tracked.update_state(second)
        shown = {"first": first, "second": second, "all": first + second, "half": 0.5 * first}
        return {**shown, "tracked": self.tracked.result()}


def losses_of_an_own_step(strategy):
    with strategy.scope():
        model = OwnStep()
        model.compile(keras.optimizers.SGD(0.1), "mae")
    return fit(model, numbers(15, 3), numbers(15, 1, seed=1))


class Average(keras.metrics.Mean):
    """A mean by another name."""


class Tracks(layers.Layer):
    """Holds a metric of its model."""

    def __init__(self, metric):
        super().__init__()
        self.metric = metric

    def call(self, x):
        return x


class OwnResults(keras.Model):
    """Returns numbers and metrics, of which a layer holds one, too, and one is a kind of mean."""

    def __init__(self):
        super().__init__()
        self.tracked = keras.metrics.Mean(name="tracked")
        self.average = Average(name="average")
        self.tracks = Tracks(self.tracked)
        self.outputs_of = {name: layers.Dense(1) for name in ("a", "b")}

    def call(self, x):
        return {name: layer(self.tracks(x)) for name, layer in self.outputs_of.items()}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x, y, outputs)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in (self.tracked, self.average):
            metric.update_state(loss)
        return {"number": loss, "tracked": self.tracked.result(), "average": self.average.result()}


def results_of_an_own_step(strategy):
    with strategy.scope():
        model = OwnResults()
        model.compile(keras.optimizers.SGD(0.1), {"a": "mse", "b": "mae"})

    def test_step(data):
        x, y = data
        loss = model.compute_loss(x, y, model(x))
        return {"tracked": loss, "twice": 2 * loss}

    # An attribute of the model takes the place of its class's method.
    model.test_step = test_step
    data = numbers(15, 3), {name: numbers(15, 1, seed=1) for name in ("a", "b")}
    trained = fit(model, *data, validation_data=data)
    return trained, model.evaluate(*data, batch_size=8, verbose=0, return_dict=True)


class OwnAverage(keras.Sequential):
    """Trains on TensorFlow's average over the whole batch."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            errors = tf.reduce_sum(tf.square(y - self(x, training=True)), -1)
            loss = tf.nn.compute_average_loss(errors)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        # As in scripts for stock strategies.
        return {"loss": loss * tf.distribute.get_strategy().num_replicas_in_sync}


def average_losses_of_an_own_step(strategy):
    with strategy.scope():
        model = OwnAverage([keras.Input([3]), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1))
    # The last batches have seven examples and one.
    x, y = numbers(15, 3), numbers(15, 1, seed=1)
    return [fit(model, x, y), fit(model, x[:9], y[:9])]


class TrainedFactors(keras.Model):
    """Multiplies the losses of two tasks by factors that it trains."""

    def __init__(self, total, loss):
        super().__init__()
        self.total, self.task_loss = total, loss
        self.tasks = layers.Dense(2)
        self.factors = self.add_weight(shape=(2,), initializer=keras.initializers.Constant(0.3))

    def call(self, x):
        return self.tasks(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            losses = [self.task_loss(y[:, i], outputs, i) for i in (0, 1)]
            penalty = tf.reduce_sum(self.factors)
            penalty /= tf.distribute.get_strategy().num_replicas_in_sync
            total = self.total(losses, self.factors, penalty)
        gradients = tape.gradient(total, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"first": losses[0]}


def task_squares(y, outputs, task):
    return keras.losses.MeanSquaredError()(y[:, tf.newaxis], outputs[:, task : task + 1])


def trained_factors_of_losses(strategy):
    def masked(y, outputs, task):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=task)
        return loss(tf.cast(y > 0, tf.int32), outputs)

    def uncertainties(losses, factors, penalty):
        return sum(tf.exp(-factors[i]) * loss for i, loss in enumerate(losses)) + penalty

    def quotients(losses, factors, penalty):
        return losses[0] / (2 * factors[0] ** 2) - losses[1] / (1 + factors[1] ** 2) - penalty

    def stacked(losses, factors, penalty):
        return 0.5 * tf.reduce_sum(tf.nn.softmax(factors) * tf.stack(losses)) - 2 * penalty

    def a_factor_of_a_sum(losses, factors, penalty):
        return losses[0] - factors[1] * (losses[0] + losses[1]) / 3 + penalty

    def listed(losses, factors, penalty):
        return [factors[0] * losses[0], losses[1] / tf.exp(factors[1]), penalty]

    def bounded(losses, factors, penalty):
        first = tf.maximum(factors[0] * losses[0], -9.0)
        return tf.where(losses[0] > 0, first, 0.0) + tf.clip_by_value(losses[1], 0, 9) + penalty

    def vectors(losses, factors, penalty):
        return [factors * tf.stack(losses), penalty]

    def beside_a_condition(losses, factors, penalty):
        chosen = tf.cond(losses[0] > 0, lambda: losses[0], lambda: losses[1])
        return chosen + factors[0] * tf.stop_gradient(losses[1]) + penalty

    def scaled(losses, factors, penalty):
        total = factors[0] * losses[0] + factors[1] * losses[1] + penalty
        return total * tf.stop_gradient(1 + factors[0]) * scale / (scale + 1)

    totals = (
        *(uncertainties, quotients, stacked, a_factor_of_a_sum, listed),
        *(bounded, vectors, beside_a_condition, scaled),
    )
    scale = tf.Variable(3.0, trainable=False)
    results = []
    for total, loss in [*((total, task_squares) for total in totals), (uncertainties, masked)]:
        with strategy.scope():
            model = TrainedFactors(total, loss)
            model.compile(keras.optimizers.SGD(0.1))
        results.append(fit(model, numbers(15, 3), numbers(15, 2, seed=1)))
    return results


def losses_of_targets_without_a_last_axis(strategy):
    """Keras' mean over the last axis is one over the examples."""
    results = []
    for loss, run_eagerly in (("mse", False), ("mse", True), (keras.losses.Huber(), False)):
        with strategy.scope():
            inputs = keras.Input([3])
            model = keras.Model(inputs, layers.Dense(1)(inputs)[:, 0])
            model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=run_eagerly)
        data = numbers(15, 3), numbers(15, seed=1)
        results.append(fit(model, *data, validation_data=data))
    return results


def losses_of_several_outputs(strategy, kind=keras.Model, second_loss="mae"):
    with strategy.scope():
        x = keras.Input([3])
        outputs = {name: layers.Dense(1, name=name)(x) for name in ("a", "b")}
        model = kind(x, outputs)
        losses = {"a": "mse", "b": second_loss}
        model.compile(
            "sgd",
            losses,
            loss_weights={"a": 0.3, "b": 2.0},
            metrics={"a": "mse"},
            # Otherwise Keras 3.16 counts the last, shorter batch as one example.
            steps_per_execution=2,
        )
    targets = {name: numbers(15, 1, seed=seed) for seed, name in enumerate(("a", "b"), 1)}
    return fit(model, numbers(15, 3), targets, validation_data=(numbers(15, 3), targets))


class OwnStepOfOutputs(keras.Model):
    """Trains as its base class does, by a step of its own."""

    def train_step(self, data):
        return super().train_step(data)


def losses_of_several_outputs_of_an_own_step(strategy):
    # Replicas meet within the second loss.
    loss = keras.losses.MeanAbsoluteError(reduction="mean_with_sample_weight")
    return losses_of_several_outputs(strategy, OwnStepOfOutputs, loss)


class OwnMetrics(keras.Sequential):
    """Shows the mean output beside compiled metrics."""

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        found = super().compute_metrics(x, y, y_pred, sample_weight)
        return found | {"mean_output": tf.reduce_mean(y_pred)}


def own_metrics(strategy):
    with strategy.scope():
        model = OwnMetrics([keras.Input([3]), layers.Dense(1, "sigmoid")])
        model.compile("sgd", "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC()])
    targets = (numbers(15, 1, seed=1) > 0).astype(np.float32)
    return fit(model, numbers(15, 3), targets)


def overlap_of_equal_parts(strategy):
    results = []
    dice, tversky = keras.losses.Dice(), keras.losses.Tversky()
    for loss, sample_weight in (
        (dice, None),
        (tversky, None),
        (dice, np.full(12, 2.0)),
        (keras.losses.Dice(axis=1), None),
        (lambda y_true, y_pred: dice(y_true, y_pred, 2.0), None),
    ):
        with strategy.scope():
            model = keras.Sequential([keras.Input([3]), layers.Dense(1, "sigmoid")])
            model.compile("sgd", loss)
        # One number for all examples: only equal parts have the whole batch's.
        x, y = (np.tile(numbers(4, size, seed=size), [3, 1]) for size in (3, 1))
        results.append(fit(model, x, y > 0, batch_size=12, sample_weight=sample_weight))
    return results


def losses_of_each_example(strategy):
    # Three replicas share 8, 7 and 1 examples.
    x, y = numbers(16, 3), numbers(16, 1, seed=1)
    data = tf.data.Dataset.from_tensor_slices((x[:15], y[:15])).batch(8)
    one = tf.data.Dataset.from_tensor_slices((x[15:], y[15:])).batch(1)
    results = []
    for options in ({}, {"jit_compile": True}, {"run_eagerly": True}):
        with strategy.scope():
            model = keras.Sequential([keras.Input([3]), layers.Dense(1)])
            loss = keras.losses.MeanSquaredError(reduction="none")
            model.compile(keras.optimizers.SGD(0.01), loss, **options)
        data_of_both = data.concatenate(one)
        results.append(fit(model, data_of_both, batch_size=None, validation_data=(x, y)))
    return results


def losses_of_sequences(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6, 4]), layers.Dense(5)])
        model.compile("sgd", keras.losses.CTC())
    return fit(model, numbers(12, 6, 4), np.arange(24).reshape(12, 2) % 4 + 1, batch_size=6)


class AddsLoss(layers.Layer):
    """Adds a loss of the kind that it is told."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.loss = keras.losses.MeanAbsoluteError()

    def call(self, x):
        squares = keras.ops.square(x)
        added = {
            "of each example": lambda: keras.ops.sum(squares, axis=-1, keepdims=True),
            "sums": lambda: keras.ops.sum(squares) - 2.0 * keras.ops.sum(squares, axis=0),
            "sum over the size": lambda: (
                keras.ops.sum(squares) / keras.ops.cast(keras.ops.shape(x)[0], "float32")
            ),
            "means": lambda: keras.ops.mean(squares, axis=0),
            "loss of Keras": lambda: sum(
                [3 * self.loss(keras.ops.ones_like(x), x), self.loss(x, 2 * x)]
            ),
            "mean of losses of Keras": lambda: keras.ops.mean(
                keras.ops.stack([self.loss(keras.ops.ones_like(x), x), self.loss(x, 2 * x)])
            ),
        }
        self.add_loss(0.1 * added[self.kind]())
        return x


class AddsConstant(layers.Layer):
    """Adds a tensor made outside of the step."""

    def __init__(self):
        super().__init__()
        self.constant = tf.constant(0.5)

    def call(self, x):
        self.add_loss(self.constant)
        return x


class Endpoint(layers.Layer):
    """Adds a loss of Keras."""

    def call(self, x):
        self.add_loss(keras.losses.MeanAbsoluteError()(keras.ops.ones_like(x), x))
        return x


def train_with(strategy, *added, run_eagerly=True):
    with strategy.scope():
        dense = layers.Dense(2, activity_regularizer="l2", kernel_regularizer="l2")
        model = keras.Sequential([keras.Input([3]), dense, *added, layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=run_eagerly)
    return fit(model, numbers(12, 3), numbers(12, 1, seed=1), batch_size=6)


def loss_of_an_eager_layer(strategy):
    return train_with(strategy, Endpoint())


class OwnComputedLoss(keras.Model):
    """Trains on what `compute_loss` returns, and shows it."""

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(*data, self(data[0], training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def added_losses(kind_of_model, num_examples, kinds):
    def program(strategy):
        with strategy.scope():
            inputs = keras.Input([3])
            x = layers.Dense(2)(inputs)
            for kind in kinds:
                x = AddsLoss(kind)(x)
            model = kind_of_model(inputs, layers.Dense(1)(x))
            model.compile(keras.optimizers.SGD(0.01), "mse")
        x, y = numbers(num_examples, 3), numbers(num_examples, 1, seed=1)
        return fit(model, x, y, batch_size=6, validation_data=(x, y))

    program.__name__ = f"added_losses_of_{num_examples}_examples_in_{kind_of_model.__name__}"
    return program


def networks():
    """A teacher and a student."""
    x = keras.Input([3])
    return [keras.Model(x, layers.Dense(4)(layers.Dense(5, name="features")(x))) for _ in range(2)]


def losses_of_distillation(strategy):
    distillation = keras.distillation
    features = {f"{name}_layer_name": "features" for name in ("teacher", "student")}
    results = []
    for student_loss_weight in (0.0, 0.3):
        with strategy.scope():
            teacher, student = networks()
            model = distillation.Distiller(
                teacher,
                student,
                [
                    distillation.LogitsDistillation(temperature=2.0),
                    distillation.FeatureDistillation(keras.losses.MeanSquaredError(), **features),
                ],
                student_loss_weight=student_loss_weight,
            )
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.1), loss)
        targets = np.arange(15) % 4
        data = (numbers(15, 3), targets)
        results.append(fit(model, *data, validation_data=data))
    return results


def masked(kind, **options):
    def program(strategy):
        return masked_cases.train(strategy, kind, **options)

    program.__name__ = "_".join([kind, *options])
    return program


class LossesTest(ClientTest, parameterized.TestCase):
    num_replicas = (3,)

    @parameterized.parameters(
        losses_of_an_own_step,
        losses_of_several_outputs,
        losses_of_each_example,
        results_of_an_own_step,
        losses_of_targets_without_a_last_axis,
        average_losses_of_an_own_step,
        trained_factors_of_losses,
        losses_of_several_outputs_of_an_own_step,
        own_metrics,
        overlap_of_equal_parts,
        losses_of_sequences,
    )
    @pytest.mark.default_cases(3)
    def test_losses_and_their_means_are_those_of_whole_batches(self, program):
        self.assert_same_without_strategy([program])

    def test_warns_of_factors_that_count_once_for_each_replica(self):
        def within_a_condition(losses, factors, penalty):
            return tf.cond(losses[0] > 0, lambda: factors[0] * losses[0], lambda: penalty)

        def beside_a_penalty(losses, factors, penalty):
            return factors[0] * (losses[0] + penalty)

        strategy = TernGradStrategy(2, grad_bits=32)
        for total, operation in ((within_a_condition, "If"), (beside_a_penalty, "Mul")):
            with strategy.scope():
                model = TrainedFactors(total, task_squares)
                model.compile("sgd")
            with self.assertWarnsRegex(
                UserWarning, f"^{operation} joins a loss .* 2 times the rate"
            ):
                model.fit(numbers(8, 3), numbers(8, 2), verbose=0)

    def test_a_keras_loss_that_an_eager_layer_adds_counts_whole(self):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="With `run_eagerly=True`")
            self.assert_same_without_strategy([loss_of_an_eager_layer])

    def test_a_number_of_a_users_own_loss_is_not_divided(self):
        class Divided(keras.losses.MeanSquaredError):
            def call(self, y_true, y_pred):
                count = tf.distribute.get_strategy().num_replicas_in_sync
                return super().call(y_true, y_pred) / count

        def program(strategy):
            with strategy.scope():
                inputs = keras.Input([3])
                model = keras.Model(inputs, layers.Dense(1)(inputs)[:, 0])
                model.compile(keras.optimizers.SGD(0.1), Divided())
            model.fit(numbers(16, 3), numbers(16, seed=1), batch_size=8, verbose=0)
            return weights(model)

        expected = self.run_program(program, tf.distribute.get_strategy())
        got = self.run_program(program, TernGradStrategy(2, grad_bits=32))
        assert_close(got, expected, "with 2 replicas")

    def test_warns_of_other_losses_that_eager_layers_add(self):
        with self.assertWarnsRegex(UserWarning, "take what a layer gives to `add_loss` for a mean"):
            train_with(TernGradStrategy(2, grad_bits=32), AddsLoss("of each example"))

    def test_compiled_steps_do_not_warn_of_a_constant_that_a_layer_adds(self):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="With `run_eagerly=True`")
            train_with(TernGradStrategy(2, grad_bits=32), AddsConstant(), run_eagerly=False)

    @pytest.mark.slow
    def test_losses_with_masks_are_those_of_whole_batches(self):
        self.assert_same_without_strategy(
            [
                *(masked(kind) for kind in masked_cases.KINDS),
                masked("ignore_class", run_eagerly=True),
                masked("ignore_class", jit_compile=True),
                masked("mask_zero", is_recurrent=True),
            ]
        )

    @pytest.mark.slow
    def test_losses_with_masks_are_of_each_replica_where_replicas_cannot_meet(self):
        strategy = TernGradStrategy(2, grad_bits=32)
        with self.assertWarnsRegex(UserWarning, "is divided by the weights of each replica's"):
            found = masked_cases.train(strategy, "ignore_class", True, jit_compile=True)
        self.assertTrue(np.isfinite(found["history"]["loss"]).all())

    @pytest.mark.slow
    def test_losses_that_layers_add_and_of_distillation_are_those_of_whole_batches(self):
        self.assert_same_without_strategy(
            [
                # Parts of known and of unknown length, the last with an empty one.
                added_losses(keras.Model, 12, ["of each example", "sums", "sum over the size"]),
                added_losses(keras.Model, 13, ["sums", "means", "loss of Keras"]),
                added_losses(keras.Model, 13, ["mean of losses of Keras"]),
                added_losses(OwnComputedLoss, 13, ["of each example", "loss of Keras"]),
                losses_of_distillation,
            ]
        )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

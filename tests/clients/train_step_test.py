"""Models with custom steps, after examples of keras.io, train as without a strategy."""

import sys

import keras
import pytest
import tensorflow as tf
from keras import layers

from terngrad_tf.distribute import TernGradStrategy
from tests.clients.comparison import ClientTest, fit, numbers


def num_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def step(optimizer, tape, loss, variables):
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


class Autoencoder(keras.Model):
    """A variational autoencoder without a `call`; the data include the noise."""

    def __init__(self, *inputs):
        super().__init__()
        self.encoder = keras.Sequential([*inputs, layers.Dense(6, "relu"), layers.Dense(4)])
        self.decoder = keras.Sequential([layers.Dense(6, "relu"), layers.Dense(3)])
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def losses_of(self, data):
        x, noise = data
        mean, log_variance = tf.split(self.encoder(x), 2, axis=1)
        z = mean + tf.exp(0.5 * log_variance) * noise
        reconstruction = tf.reduce_sum(tf.square(x - self.decoder(z)), axis=1)
        divergence = -0.5 * (1 + log_variance - tf.square(mean) - tf.exp(log_variance))
        return reconstruction + tf.reduce_sum(divergence, axis=1)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            losses = self.losses_of(data)
            loss = tf.reduce_mean(losses) / num_replicas()
        step(self.optimizer, tape, loss, self.trainable_weights)
        self.loss_tracker.update_state(losses)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data):
        self.loss_tracker.update_state(self.losses_of(data))
        return {"loss": self.loss_tracker.result()}


def autoencoder(strategy, *inputs, **options):
    with strategy.scope():
        model = Autoencoder(*inputs)
        model.compile(keras.optimizers.Adam(0.01), **options)
    batches = tf.data.Dataset.from_tensor_slices((numbers(16, 3), numbers(16, 2, seed=1))).batch(8)
    results = fit(model, batches, batch_size=None, validation_data=batches)
    return results, model.evaluate(batches, verbose=0)


def autoencoder_of_known_inputs(strategy):
    return autoencoder(strategy, layers.Input((3,)))


def autoencoder_of_unknown_inputs(strategy):
    return autoencoder(strategy)


def autoencoder_that_runs_eagerly(strategy):
    return autoencoder(strategy, run_eagerly=True)


def autoencoder_that_accumulates(strategy):
    return autoencoder(strategy, layers.Input((3,)), steps_per_execution=2)


class Adversaries(keras.Model):
    """A generative adversarial network with two optimizers; the data include the noise."""

    def __init__(self, penalty):
        super().__init__()
        self.generator = keras.Sequential([layers.Dense(4, "relu"), layers.Dense(3)])
        self.discriminator = keras.Sequential(
            [layers.Dense(4, keras.layers.LeakyReLU()), layers.Dense(1)]
        )
        self.penalty = penalty

    def compile(self, generator_optimizer, discriminator_optimizer):
        super().compile()
        self.generator_optimizer = generator_optimizer
        self.discriminator_optimizer = discriminator_optimizer
        self.trackers = [keras.metrics.Mean(name=name) for name in ("d_loss", "g_loss")]

    @property
    def metrics(self):
        return self.trackers

    def gradient_penalty(self, real, fake):
        between = 0.3 * real + 0.7 * fake
        with tf.GradientTape() as tape:
            tape.watch(between)
            scores = self.discriminator(between)
        gradient = tape.gradient(scores, between)
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradient), axis=1))
        return tf.reduce_mean(tf.square(norm - 1.0))

    def train_step(self, data):
        real, noise = data
        for _ in range(2):
            with tf.GradientTape() as tape:
                fake = self.generator(noise)
                difference = self.discriminator(fake) - self.discriminator(real)
                d_loss = tf.reduce_mean(difference)
                d_loss += self.penalty * self.gradient_penalty(real, fake)
                scaled = d_loss / num_replicas()
            step(self.discriminator_optimizer, tape, scaled, self.discriminator.trainable_weights)
        with tf.GradientTape() as tape:
            g_loss = -tf.reduce_mean(self.discriminator(self.generator(noise)))
            scaled = g_loss / num_replicas()
        step(self.generator_optimizer, tape, scaled, self.generator.trainable_weights)
        for tracker, loss in zip(self.trackers, (d_loss, g_loss), strict=True):
            tracker.update_state(loss)
        return {tracker.name: tracker.result() for tracker in self.trackers}


def adversaries(strategy, penalty):
    with strategy.scope():
        model = Adversaries(penalty)
        model.compile(
            keras.optimizers.Adam(0.01, beta_1=0.5), keras.optimizers.RMSprop(0.01, momentum=0.5)
        )
    return fit(model, numbers(16, 3), numbers(16, 2, seed=1))


def generative_adversarial_network(strategy):
    return adversaries(strategy, 0.0)


def wasserstein_network_with_gradient_penalty(strategy):
    return adversaries(strategy, 10.0)


class Triplets(keras.Model):
    """Takes three inputs, which Keras regards as inputs, targets and sample weights."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.Sequential([layers.Input((3,)), layers.Dense(2)])

    def call(self, anchor, positive, negative):
        a, p, n = (self.embedding(x) for x in (anchor, positive, negative))
        return tf.reduce_sum(tf.square(a - p), 1) - tf.reduce_sum(tf.square(a - n), 1)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.softplus(self(*data)))
            scaled = loss / num_replicas()
        step(self.optimizer, tape, scaled, self.trainable_weights)
        return {"loss": loss}


def triplets(strategy):
    with strategy.scope():
        model = Triplets()
        model.compile("sgd")
    data = tuple(numbers(16, 3, seed=seed) for seed in range(3))
    batches = tf.data.Dataset.from_tensor_slices(data).batch(8)
    return fit(model, batches, batch_size=None)


class Distiller(keras.Model):
    """Trains a student on the outputs of a frozen teacher, with its own `compute_loss`."""

    def __init__(self):
        super().__init__()
        self.teacher = keras.Sequential([layers.Input((3,)), layers.Dense(2)])
        self.teacher.trainable = False
        self.student = keras.Sequential([layers.Input((3,)), layers.Dense(2)])

    def call(self, x):
        return self.student(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        loss += keras.losses.MeanSquaredError()(self.teacher(x, training=False), y_pred)
        return loss


def distillation(strategy):
    with strategy.scope():
        model = Distiller()
        model.compile("adam", "mse", metrics=["mae"])
    return fit(model, numbers(16, 3), numbers(16, 2), sample_weight=numbers(16, seed=2) ** 2)


class SharpnessAware(keras.Model):
    """Clips the gradient at the worst weights near its own, by the norm of the whole batch."""

    def __init__(self):
        super().__init__()
        self.net = keras.Sequential([layers.Input((3,)), layers.Dense(4, "tanh"), layers.Dense(1)])

    def call(self, x):
        return self.net(x)

    def summed_gradients(self, x, y):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x))
        gradients = tape.gradient(loss, self.trainable_weights)
        if num_replicas() > 1:
            gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        return loss, gradients

    def train_step(self, data):
        loss, gradients = self.summed_gradients(*data)
        ascent = [g * 0.1 / (tf.linalg.global_norm(gradients) + 1e-12) for g in gradients]
        for weight, change in zip(self.trainable_weights, ascent, strict=True):
            weight.assign_add(change)
        _, gradients = self.summed_gradients(*data)
        for weight, change in zip(self.trainable_weights, ascent, strict=True):
            weight.assign_sub(change)
        gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
        self.optimizer.apply([g / num_replicas() for g in gradients], self.trainable_weights)
        return {"mean": loss}


def sharpness_aware(strategy):
    with strategy.scope():
        model = SharpnessAware()
        model.compile(keras.optimizers.SGD(0.1), "mse")
    return fit(model, numbers(30, 3), numbers(30, 1))


class Counter(layers.Layer):
    """Counts its training calls."""

    def build(self, shape):
        self.count = self.add_weight(
            shape=(),
            dtype="int32",
            trainable=False,
            initializer="zeros",
            aggregation="only_first_replica",
        )

    def call(self, x, training=False):
        if training:
            self.count.assign_add(1)
        return x


def layers_that_count(strategy):
    with strategy.scope():
        model = keras.Sequential([layers.Input((3,)), Counter(), layers.Dense(1)])
        model.compile("sgd", "mse")
    return fit(model, numbers(16, 3), numbers(16, 1))


class Regressor(keras.Model):
    """A network without a `call`, trained by an optimizer that Keras does not build."""

    def __init__(self, *inputs):
        super().__init__()
        self.net = keras.Sequential(
            [*inputs, layers.Dense(4, "tanh"), layers.BatchNormalization(), layers.Dense(1)]
        )

    def compile(self, net_optimizer):
        super().compile()
        self.net_optimizer = net_optimizer

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.net(x, training=True) - y)) / num_replicas()
        step(self.net_optimizer, tape, loss, self.net.trainable_weights)
        return {"loss": loss}


def regression(strategy, *inputs):
    with strategy.scope():
        model = Regressor(*inputs)
        model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=3))
        if inputs:
            model.net_optimizer.build(model.net.trainable_variables)
    return fit(model, numbers(40, 3), numbers(40, 1))


class Reporter(keras.Model):
    """Returns the results of all its metrics, of which one holds those that `compile` gets."""

    def __init__(self):
        super().__init__()
        self.net = layers.Dense(1)

    def call(self, x):
        return self.net(x)

    def train_step(self, data):
        x, y, *_ = data
        with tf.GradientTape() as tape:
            prediction = self(x)
            loss = self.compute_loss(y=y, y_pred=prediction)
        step(self.optimizer, tape, loss, self.trainable_weights)
        for metric in self.metrics:
            metric.update_state(*((loss,) if metric.name == "loss" else (y, prediction)))
        return {metric.name: metric.result() for metric in self.metrics}


def metrics_of_compile(strategy):
    with strategy.scope():
        model = Reporter()
        model.compile("sgd", "mse", metrics=["mae", "mse"])
    results = fit(model, numbers(32, 3), numbers(32, 1), batch_size=9)
    batch = model.train_on_batch(numbers(9, 3), numbers(9, 1), return_dict=True)
    return results, batch


PROGRAMS = [
    autoencoder_of_known_inputs,
    autoencoder_of_unknown_inputs,
    autoencoder_that_runs_eagerly,
    autoencoder_that_accumulates,
    generative_adversarial_network,
    wasserstein_network_with_gradient_penalty,
    triplets,
    distillation,
    layers_that_count,
]


class TrainStepTest(ClientTest):
    num_replicas = (4,)

    @pytest.mark.long
    def test_some_programs_compute_the_same_on_four_replicas(self):
        self.assert_same_without_strategy(
            [autoencoder_of_unknown_inputs, generative_adversarial_network]
        )

    def test_metrics_of_compile_are_those_of_all_replicas(self):
        self.assert_same_without_strategy([metrics_of_compile])

    def test_gradients_that_a_step_sums_itself_are_divided_for_the_optimizer(self):
        self.assert_same_without_strategy([sharpness_aware])

    def test_what_the_first_step_builds_trains_like_what_was_built_before(self):
        programs = regression, lambda strategy: regression(strategy, layers.Input((3,)))
        got, expected = (self.run_program(program, TernGradStrategy(2)) for program in programs)
        self.assertAllEqual(got["history"]["loss"], expected["history"]["loss"])
        for one, other in zip(got["weights"], expected["weights"], strict=True):
            self.assertAllEqual(one, other)


@pytest.mark.long
class AllTrainStepTest(ClientTest):
    num_replicas = (1, 4)

    def test_all_programs_compute_the_same(self):
        self.assert_same_without_strategy(PROGRAMS)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

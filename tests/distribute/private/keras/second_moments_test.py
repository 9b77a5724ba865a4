"""Tests of updates by second moments without the noise of rounding."""

import functools
import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import AbsAdam, DiLoCo, Quantization, TernGradStrategy
from tests.distribute import strategy_options
from tests.distribute.optimizer_cases import CLASSES
from tests.distribute.private.keras import second_moments_oracle as oracle
from tests.distribute.private.keras.second_moments_cases import (
    SHAPES,
    batches,
    make,
    noise_of,
    received,
    train,
    weights_of,
)

optimizers = keras.optimizers
CORRECTED = (
    *("Adafactor", "Adagrad", "Adam", "AdamW", "Adamax"),
    *("Lamb", "Lion", "Muon", "Nadam", "RMSprop"),
)


def ternary_codes_alone():
    """Context of gradients with more noise than Muon's have by default."""
    return mock.patch.object(Quantization, "finer", lambda self, bits: self)


def _rmsprop(name, **options):
    return (name, optimizers.RMSprop, options, oracle.rmsprop, options)


class OptimizersTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.given = batches()
        cls.steps = received(cls.given)

    def check(self, weights, optimizer, steps, reference, **how):
        """Compares weights and the optimizer's variables, which contain noise, with an oracle's."""
        for i, shape in enumerate(SHAPES):
            with self.subTest(shape=shape):
                want, slots = reference(weights_of(shape), [step[i] for step in steps], **how)
                self.assertAllClose(weights[i], want, rtol=1e-5, atol=1e-5)
                for name, value in slots.items():
                    found = [v for v in optimizer.variables if v.name.endswith(f"w{i}_{name}")]
                    self.assertAllClose(found[0].numpy(), value, rtol=1e-5, atol=1e-8)

    @parameterized.named_parameters(
        ("Adam", optimizers.Adam, {}, oracle.adam, {}),
        ("amsgrad", optimizers.Adam, {"amsgrad": True}, oracle.adam, {"amsgrad": True}),
        ("Nadam", optimizers.Nadam, {}, oracle.adam, {"kind": "nadam"}),
        ("Lamb", optimizers.Lamb, {}, oracle.lamb, {}),
        _rmsprop("RMSprop"),
        _rmsprop("RMSprop with momentum", momentum=0.5),
        _rmsprop("RMSprop, centered", centered=True, rho=0.8),
        ("Adagrad", optimizers.Adagrad, {}, oracle.adagrad, {}),
        ("Adamax", optimizers.Adamax, {}, oracle.adamax, {}),
        ("Adafactor", optimizers.Adafactor, {}, oracle.adafactor, {}),
        ("Lion", optimizers.Lion, {}, oracle.lion, {}),
        ("SGD", optimizers.SGD, {}, oracle.sgd, {}),
    )
    def test_update_is_by_squares_without_noise(self, kind, options, reference, how):
        weights, optimizer = train(lambda: kind(0.01, **options))
        self.check(weights, optimizer, self.steps, reference, **how)

    def test_gradients_that_are_clipped_have_less_noise(self):
        limit = 0.5
        for option in ("clipnorm", "global_clipnorm", "clipvalue"):
            steps = []
            for step in self.steps:
                whole = np.sqrt(sum(np.sum(g**2) for g, _ in step))
                clipped = {
                    "clipnorm": lambda g: g * min(1, limit / np.linalg.norm(g)),
                    "global_clipnorm": lambda g, whole=whole: g * min(1, limit / whole),
                    "clipvalue": lambda g: np.clip(g, -0.05, 0.05),
                }[option]
                steps.append(
                    [(clipped(g), n * np.sum(clipped(g) ** 2) / np.sum(g**2)) for g, n in step]
                )
            value = 0.05 if option == "clipvalue" else limit
            with self.subTest(option=option):
                clips = {option: value}
                weights, optimizer = train(lambda clips=clips: optimizers.Adam(0.01, **clips))
                self.check(weights, optimizer, steps, oracle.adam)

    @pytest.mark.slow
    def test_accumulated_gradients_are_rounded_once(self):
        given = batches(6)
        means = [
            [[(a + b) / 2 for a, b in zip(*of_replica, strict=True)] for of_replica in pair]
            for pair in (zip(*given[k : k + 2], strict=True) for k in (0, 2, 4))
        ]
        weights, optimizer = train(
            lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2), given
        )
        self.check(weights, optimizer, received(means), oracle.adam)

    @pytest.mark.slow
    def test_scaled_losses_and_averages_of_weights_change_nothing(self):
        scaled = [[[8 * g for g in of_replica] for of_replica in batch] for batch in self.given]
        for make_optimizer in (
            lambda: optimizers.Adam(0.01, loss_scale_factor=8.0),
            lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01), initial_scale=8.0),
        ):
            weights, optimizer = train(make_optimizer, scaled)
            self.check(weights, optimizer, self.steps, oracle.adam)
        weights, optimizer = train(lambda: optimizers.Adam(0.01, use_ema=True))
        self.check(weights, optimizer, self.steps, oracle.adam)

    @pytest.mark.slow
    def test_a_restarted_optimizer_has_no_old_noise(self):
        weights, optimizer, take = make(lambda: optimizers.Adam(0.01))
        variables = [*weights, *optimizer.variables]
        start = [variable.numpy() for variable in variables]

        def trained():
            for variable, value in zip(variables, start, strict=True):
                variable.assign(value)
            for batch in self.given:
                take(batch)
            return [weight.numpy() for weight in weights]

        first = trained()
        self.assertAllEqual(
            np.concatenate([w.ravel() for w in trained()]),
            np.concatenate([w.ravel() for w in first]),
        )

    @pytest.mark.slow
    def test_the_second_rounding_of_bidirectional_counts(self):
        _, once = train(lambda: optimizers.Adam(0.01), self.given[:2])
        _, twice = train(lambda: optimizers.Adam(0.01), self.given[:2], wire="bidirectional")
        averages = (o.rounding_noise.averages for o in (once, twice))
        for few, more in zip(*averages, strict=True):
            self.assertAllGreater(more / few, 1.2)

    def test_muon_corrects_what_adam_trains(self):
        if "Muon" not in CLASSES:
            self.skipTest("not with this release of Keras")
        options = {"adam_lr_ratio": 1.0, "weight_decay": None, "adam_weight_decay": None}
        with ternary_codes_alone():
            weights, optimizer = train(lambda: optimizers.Muon(0.01, **options))
        for i in (1, 2):
            want, _ = oracle.adam(weights_of(SHAPES[i]), [step[i] for step in self.steps])
            self.assertAllClose(weights[i], want, rtol=1e-5, atol=1e-5)
        self.assertLen(optimizer.rounding_noise.averages, 3)

    @parameterized.parameters(True, False)
    @pytest.mark.default_cases(1)
    def test_muon_takes_longer_orthogonal_steps(self, nesterov):
        if "Muon" not in CLASSES:
            self.skipTest("not with this release of Keras")
        options = {"nesterov": nesterov, "weight_decay": None}
        with ternary_codes_alone():
            weights, _ = train(lambda: optimizers.Muon(0.01, **options))
        plain, want = optimizers.Muon(1.0, **options), weights_of(SHAPES[0])
        weight = keras.Variable(want)
        plain.build([weight])
        steps = [step[0] for step in self.steps]
        for (gradient, _), factor in zip(
            steps, oracle.muon_factors(steps, nesterov=nesterov), strict=True
        ):
            weight.assign(tf.zeros(weight.shape))
            plain.apply([gradient])
            want = want + 0.01 * factor * weight.numpy()
            self.assertGreater(factor, 1.01)
        self.assertAllClose(weights[0], want, rtol=1e-4, atol=1e-5)

    @pytest.mark.slow
    def test_each_optimizer_of_several_corrects_its_own_weights(self):
        if not hasattr(optimizers, "MultiOptimizer"):
            self.skipTest("not in this release of Keras")
        parts = []

        def several():
            parts[:] = optimizers.Adam(0.01), optimizers.SGD(0.01)
            return optimizers.MultiOptimizer(lambda v: parts[int(v.path == "w1")])

        _, optimizer, take = make(several)
        for batch in self.given:
            take(batch)
        self.assertFalse(hasattr(optimizer, "rounding_noise"))
        adam, sgd = parts
        self.assertFalse(hasattr(sgd, "rounding_noise"))
        for average in adam.rounding_noise.averages:
            self.assertGreater(average.numpy().min(), 0)

    def test_schedule_free_adam_corrects_its_first_step(self):
        # Tests the first step only; later weights are means over several steps.
        if not hasattr(optimizers, "ScheduleFreeAdamW"):
            self.skipTest("not in this release of Keras")
        weights, _ = train(lambda: optimizers.ScheduleFreeAdamW(0.01), self.given[:1])
        for i, shape in enumerate(SHAPES):
            gradient, noise = self.steps[0][i]
            step = gradient / (np.sqrt(oracle.less(gradient**2, noise)) + 1e-8)
            self.assertAllClose(weights[i], weights_of(shape) - 0.01 * step, atol=1e-5)

    @pytest.mark.slow
    def test_corrected_training_ends_nearer_to_float_training(self):
        class Uncorrected(optimizers.Adam):
            def update_step(self, gradient, variable, learning_rate):
                super().update_step(gradient, variable, learning_rate)

        def distance(kind, seed, **options):
            """Distance to the optimum of a quadratic loss after steps by noisy gradients."""
            rng = np.random.default_rng(seed)
            weights, _, take = make(lambda: kind(0.02), start=np.zeros, seed=seed, **options)
            optimum = [rng.standard_normal(shape) for shape in SHAPES]
            now = [v.numpy() for v in weights]
            for _ in range(60):
                batch = [
                    [0.5 * (w - best) + rng.standard_normal(w.shape) * 0.2 for w, best in pairs]
                    for pairs in [[*zip(now, optimum, strict=True)]] * 2
                ]
                now = take([[g.astype(np.float32) for g in of_replica] for of_replica in batch])
            return sum(np.sum((w - best) ** 2) for w, best in zip(now, optimum, strict=True))

        for seed in (1, 2):
            exact = distance(optimizers.Adam, seed, grad_bits=32)
            plain, corrected = distance(Uncorrected, seed), distance(optimizers.Adam, seed)
            self.assertGreater(plain, 1.05 * exact)
            self.assertLess(abs(corrected - exact), 0.3 * (plain - exact))


class WhatIsCorrectedTest(parameterized.TestCase, tf.test.TestCase):
    def noise_kept(self, make_optimizer, **options):
        """Indices of the weights for which an optimizer averages noise."""
        _, optimizer, _ = make(make_optimizer, **options)
        kept = getattr(optimizer, "rounding_noise", None)
        return () if kept is None else kept.indices

    def test_all_keras_optimizers_that_noise_slows_down(self):
        for name in CLASSES:
            kept = self.noise_kept(lambda name=name: getattr(optimizers, name)())
            self.assertEqual(kept, (0, 1, 2) if name in CORRECTED else (), name)

    def test_subclasses_with_the_same_update(self):
        class Same(optimizers.Adam):
            pass

        class Other(optimizers.Adam):
            def update_step(self, gradient, variable, learning_rate):
                super().update_step(2 * gradient, variable, learning_rate)

        self.assertEqual(self.noise_kept(Same), (0, 1, 2))
        self.assertEqual(self.noise_kept(Other), ())
        self.assertEqual(self.noise_kept(AbsAdam), ())

    def test_weights_whose_gradients_are_rotated(self):
        names = ["a", "logits", "b"]
        for options, want in (
            ({"rotate": False}, ()),
            ({"grad_bits": 32}, ()),
            ({"grad_bits": 4}, (0, 1, 2)),
            ({"min_size": 6}, (0, 1)),
            ({"quantize_logits": False}, (0, 2)),
        ):
            self.assertEqual(self.noise_kept(optimizers.Adam, names=names, **options), want)

    def test_float_steps_have_no_noise(self):
        given = batches()
        _, plain = train(lambda: optimizers.Adam(0.01), given, grad_bits=32)
        _, later = train(lambda: optimizers.Adam(0.01), given, float_steps=lambda step: step < 3)
        _, never = train(lambda: optimizers.Adam(0.01), given, float_steps=lambda step: step < 9)
        for a, b in zip(plain.variables, never.variables, strict=True):
            self.assertAllEqual(a, b)
        for i, average in enumerate(later.rounding_noise.averages):
            noise = np.unique(noise_of(given[3])[i])
            self.assertAllClose(np.sort(average[0]), 0.001 * noise, rtol=1e-4)
            self.assertAllEqual(never.rounding_noise.averages[i], np.zeros(average.shape))

    def test_an_update_of_float_gradients_alone_leaves_the_averages(self):
        strategy = TernGradStrategy(2, quantization=Quantization(min_size=4))
        with strategy.scope():
            kernel, bias = keras.Variable(tf.zeros([4])), keras.Variable(tf.zeros([2]))
            optimizer = optimizers.Adam(0.1)
            optimizer.build([kernel, bias])

        def apply():
            optimizer.apply([tf.constant([1.0, 2.0, 3.0, 4.0])], [kernel])
            optimizer.apply([tf.ones([2])], [bias])

        tf.function(lambda: strategy.run(apply))()
        store = {}
        optimizer.rounding_noise.save_own_variables(store)
        self.assertGreater(store["0"].min(), 0)

    @parameterized.parameters("Adam", "Adagrad", "Adamax", "Lamb")
    @pytest.mark.default_cases(2)
    def test_a_weight_without_elements(self, name):
        for strategy in (tf.distribute.get_strategy(), TernGradStrategy(2)):
            with strategy.scope():
                variables = [keras.Variable(tf.zeros(shape)) for shape in ([0, 3], [2000])]
                optimizer = getattr(optimizers, name)(0.1)
                optimizer.build(variables)

            def apply(optimizer, variables):
                optimizer.apply([tf.zeros([0, 3]), tf.ones([2000])], variables)

            step = functools.partial(apply, optimizer, variables)
            tf.function(lambda step=step, strategy=strategy: strategy.run(step))()
            empty, full = variables
            self.assertEqual(empty.shape, (0, 3))
            self.assertLess(np.mean(full), 0.0)

    @pytest.mark.slow
    def test_rows_of_embeddings_have_noise_as_whole_tensors(self):
        def row_and_noise(**options):
            strategy = TernGradStrategy(2, **strategy_options.arguments(rotate=True, **options))
            with strategy.scope():
                table = keras.Variable(tf.zeros([500, 4]))
                optimizer = optimizers.Adam(0.1)
                optimizer.build([table])
            rows = tf.IndexedSlices(tf.ones([2, 4]), tf.constant([3, 7]), tf.constant([500, 4]))
            step = tf.function(lambda: strategy.run(lambda: optimizer.apply([rows], [table])))
            step()
            kept = getattr(optimizer, "rounding_noise", None)
            return table.numpy()[3], kept and kept.averages[0].numpy()

        exact, _ = row_and_noise(grad_bits=32)
        row, noise = row_and_noise(sparse_as_dense=False)
        self.assertAllEqual(row, exact)
        self.assertAllEqual(noise, [[0, 0]])
        # Rounded rows have separate scales, and no noise that an update must correct for.
        _, noise = row_and_noise()
        self.assertAllEqual(noise, [[0, 0]])
        _, noise = row_and_noise(sparse_as_dense=True)
        # The second block is 0.
        self.assertAllEqual(noise > 0, [[True, False]])

    def test_steps_of_a_replica_are_by_float_gradients(self):
        _, optimizer, take = make(lambda: DiLoCo(optimizers.Adam(0.01), 2, outer="adam"))
        for batch in batches():
            take(batch)
        self.assertFalse(hasattr(optimizer._inner.value, "rounding_noise"))
        # The exchange rounds its values, and the outer optimizer corrects for that.
        self.assertGreater(optimizer.outer.rounding_noise.averages[0].numpy().min(), 0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Tests of P-SGD, against NumPy."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import DiLoCo
from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.subspace import Subspace, SubspaceSGD
from tests.subspace.samples import (
    NUM_COMPONENTS,
    build,
    build_under,
    data,
    directions,
    flat,
    loss_and_gradient,
    new_folder,
)


class SubspaceSGDTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.model = build()
        self.basis = directions(flat(self.model).size, NUM_COMPONENTS)
        self.x, self.y = data()

    def fit(self, model, epochs, **options):
        options = {"batch_size": len(self.x), "shuffle": False, "verbose": 0, **options}
        return model.fit(self.x, self.y, epochs=epochs, **options).history["loss"]

    def test_steps_in_a_stock_model_are_those_of_the_formulas_with_a_schedule(self):
        rate = keras.optimizers.schedules.PiecewiseConstantDecay([2], [0.5, 0.1])
        _, gradient_of = loss_and_gradient(build(), self.x, self.y)
        expected, velocity = flat(self.model).astype(np.float64), 0.0
        self.model.compile(SubspaceSGD(Subspace(self.basis), rate, momentum=0.8), self.model.loss)
        for step in range(5):
            self.fit(self.model, 1)
            velocity = 0.8 * velocity + self.basis @ gradient_of(expected)
            expected -= (0.5 if step <= 2 else 0.1) * self.basis.T @ velocity
            np.testing.assert_allclose(flat(self.model), expected, atol=1e-4, err_msg=str(step))
        self.assertEqual(int(self.model.optimizer.iterations.numpy()), 5)

    def test_replicas_step_as_one_replica(self):
        results = []
        for strategy in (tf.distribute.get_strategy(), TernGradStrategy(4)):
            model = build_under(strategy, lambda n: SubspaceSGD(Subspace(self.basis), 0.3))
            self.fit(model, 3)
            results.append(flat(model))
        np.testing.assert_allclose(*results, atol=1e-4)

    def test_a_model_resumes_bit_for_bit_with_its_schedule(self):
        folder = new_folder(self)
        subspace = Subspace(self.basis)
        subspace.save(folder / "basis.npy")
        rate = keras.optimizers.schedules.CosineDecay(0.5, 10)
        self.model.compile(SubspaceSGD(subspace, rate), self.model.loss)
        self.fit(self.model, 2)
        self.model.save(folder / "model.keras")
        loaded = keras.models.load_model(folder / "model.keras")
        for model in (self.model, loaded):
            self.fit(model, 3)
        np.testing.assert_array_equal(flat(loaded), flat(self.model))

    def test_the_optimizer_saves_none_of_the_model_weights(self):
        self.model.compile(SubspaceSGD(Subspace(self.basis)), self.model.loss)
        self.fit(self.model, 1)
        weights = {id(v) for v in self.model.trainable_variables}
        self.assertFalse(weights & {id(v) for v in self.model.optimizer.variables})

    def test_arguments_out_of_range_and_other_weights_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"`momentum` must be in the range \[0, 1\)"):
            SubspaceSGD(Subspace(self.basis), momentum=1)
        optimizer = SubspaceSGD(Subspace(self.basis))
        variables = self.model.trainable_variables
        optimizer.build(variables)
        with self.assertRaisesRegex(ValueError, "must be all 4 .*Received: 1 weights"):
            optimizer.apply([tf.zeros((4, 5))], variables[:1])
        gradients = [tf.zeros(v.shape) for v in variables]
        for wrong in (gradients[:2], gradients[::-1]):
            with self.assertRaisesRegex(ValueError, r"`grads` must have the weights' shapes \[\("):
                optimizer.apply(wrong)
        with self.assertRaisesRegex(ValueError, "`grads` must not all be None"):
            optimizer.apply([None] * 4, variables)

    def test_local_steps_are_refused_since_each_step_exchanges(self):
        for role in ("inner", "outer"):
            optimizers = {"inner": "sgd", role: SubspaceSGD(Subspace(self.basis))}
            with self.assertRaisesRegex(ValueError, f"`{role}` must not exchange gradients in its"):
                DiLoCo(**optimizers)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Tests of single P-BFGS steps on one replica, against NumPy."""

import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.subspace import (
    Subspace,
    SubspaceBFGS,
    SubspaceModel,
    SubspaceSGD,
    SubspaceTrainingMixin,
)
from tests.subspace.optimizers.oracle import Oracle
from tests.subspace.samples import (
    assign_flat,
    build,
    data,
    directions,
    flat,
    loss_and_gradient,
    new_folder,
)

K = 6


def subspace_model(optimizer, seed=0, **options):
    """Returns the small classifier as a compiled `SubspaceModel`."""
    network = build(seed)
    model = SubspaceModel(network.inputs, network.outputs)
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **options,
    )
    return model


class StepTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.network = build()
        self.basis = directions(flat(self.network).size, K)
        self.x, self.y = data()
        self.start = flat(self.network)

    def optimizer(self, **options):
        return SubspaceBFGS(Subspace(self.basis), **options)

    def fit(self, model, steps, **options):
        """Trains full batches, one a step."""
        options = {"batch_size": len(self.x), "shuffle": False, "verbose": 0, **options}
        return model.fit(self.x, self.y, epochs=steps, **options).history


class StepTest(StepTestCase):
    def check_steps(self, num_steps, on_failure="reset", compile_options=None, **options):
        """Compares each step, starting from the oracle's previous state; returns the optimizer."""
        oracle = Oracle(self.basis, **options)
        functions = loss_and_gradient(self.network, self.x, self.y)
        optimizer = self.optimizer(on_failure=on_failure, **options)
        model = subspace_model(optimizer, **(compile_options or {}))
        expected = self.start.astype(np.float64)
        for step in range(num_steps):
            history = self.fit(model, 1)
            loss = functions[0](expected)
            self.assertNear(history["loss"][0], loss, 1e-5)
            expected = oracle.step(expected, *functions, on_failure=on_failure)
            np.testing.assert_allclose(flat(model), expected, atol=2e-4, err_msg=f"step {step}")
            np.testing.assert_allclose(optimizer._last_step, oracle.last_step, atol=2e-4)
            # Rounding errors grow over steps, so both continue from the same state.
            assign_flat(model, expected)
            optimizer._last_step.assign(oracle.last_step)
            optimizer._last_gradient.assign(oracle.last_gradient)
            np.testing.assert_allclose(
                optimizer._inverse_hessian, oracle.inverse_hessian, rtol=1e-2, atol=1e-2
            )
            optimizer._inverse_hessian.assign(oracle.inverse_hessian)
        self.assertEqual(int(optimizer.iterations.numpy()), num_steps)
        self.assertEqual(int(optimizer.num_trials.numpy()), sum(oracle.trials))
        return optimizer, oracle

    def test_steps_are_those_of_the_formulas(self):
        self.check_steps(6)

    @pytest.mark.slow
    def test_steps_with_momentum_outside_of_the_subspace_are_those_of_the_formulas(self):
        self.check_steps(4, alpha=0.05, gamma=0.8)
        self.check_steps(4, alpha=0.05, residual_every=3, shard_basis=True)

    def test_bytes_count_the_numbers_sent(self):
        weights, processes = self.network.trainable_variables, 2
        for options, step, numbers in (
            ({}, 0, K + 1),
            ({"alpha": 0.1}, 0, K + 1),
            # Pieces of 22 of the 43 weights, for gradient and direction.
            ({"shard_basis": True}, 0, K + 1 + 22 + 22),
            ({"shard_basis": True, "alpha": 0.1, "residual_every": 2}, 1, K + 1 + 22 + 22),
            ({"shard_basis": True, "alpha": 0.1, "residual_every": 2}, 2, 2 * K + 1 + 3 * 22),
        ):
            with self.subTest(options=options):
                optimizer = self.optimizer(**options)
                optimizer.build(weights)
                self.assertEqual(optimizer.received_bytes(processes, step), 4 * numbers, options)
                self.assertEqual(
                    optimizer.steps_outside(step), bool(options.get("alpha")) and step != 1
                )

    def test_trials_follow_the_options(self):
        # The start is steep, so full steps fail.
        self.x *= 30
        _, oracle = self.check_steps(3, rho=0.3, sigma=0.7)
        self.assertGreater(max(oracle.trials), 1)

    def test_a_failed_search_takes_no_step_and_forgets_the_curvature(self):
        optimizer, oracle = self.check_steps(2, sigma=0.99, max_trials=1)
        self.assertEqual(int(optimizer.num_failures.numpy()), 2)
        np.testing.assert_array_equal(oracle.last_step, np.zeros(K))

    def test_the_reference_steps_on_after_a_failed_search(self):
        optimizer, _ = self.check_steps(1, on_failure="reference", sigma=0.999, max_trials=2)
        self.assertEqual(int(optimizer.num_failures.numpy()), 1)
        np.testing.assert_array_equal(optimizer._last_step, np.zeros(K))

    def test_eager_and_compiled_steps_give_the_same(self):
        for options in ({"run_eagerly": True}, {"jit_compile": True}):
            with self.subTest(options=options):
                self.check_steps(2, compile_options=options)

    def test_several_steps_per_execution_give_the_same(self):
        results = []
        for steps in (1, 2):
            with self.subTest(steps=steps):
                model = subspace_model(self.optimizer(), steps_per_execution=steps)
                self.fit(model, 1, batch_size=24)
                self.assertEqual(int(model.optimizer.iterations.numpy()), 4)
                results.append(flat(model))
        np.testing.assert_allclose(*results, atol=1e-4)

    def test_the_loss_falls_and_weights_stay_in_the_subspace(self):
        model = subspace_model(self.optimizer())
        losses = self.fit(model, 12)["loss"]
        self.assertLess(losses[-1], 0.8 * losses[0])
        self.assertTrue((np.diff(losses) < 1e-6).all())
        moved = flat(model) - self.start
        np.testing.assert_allclose(self.basis.T @ (self.basis @ moved), moved, atol=1e-5)

    @pytest.mark.slow
    def test_a_basis_in_16_bits_moves_nearly_alike(self):
        exact = subspace_model(self.optimizer())
        self.fit(exact, 1)
        for dtype in ("float16", "bfloat16"):
            with self.subTest(dtype=dtype):
                model = subspace_model(self.optimizer(dtype=dtype))
                self.fit(model, 1)
                np.testing.assert_allclose(flat(model), flat(exact), atol=2e-2)

    def test_weights_that_are_not_finite_stop_the_search_and_nothing_else_breaks(self):
        model = subspace_model(self.optimizer())
        self.x[0] = np.nan
        self.fit(model, 1)
        np.testing.assert_array_equal(flat(model), self.start)
        self.x[0] = 0
        losses = self.fit(model, 3)["loss"]
        self.assertTrue(np.isfinite(losses).all())
        self.assertLess(losses[-1], losses[0])


class TrialsTest(tf.test.TestCase):
    """Trials leave a network with dropout, batch norm and regularizers unchanged."""

    def build(self, seed=2, cls=SubspaceModel):
        keras.utils.set_random_seed(seed)
        inputs = keras.Input((4,))
        x = keras.layers.Dense(8, kernel_regularizer=keras.regularizers.L2(0.1))(inputs)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.Dropout(0.4, seed=3)(x)
        x = keras.layers.Dense(3, activity_regularizer=keras.regularizers.L2(0.01))(x)
        return cls(inputs, x)

    def compile(self, model, **options):
        n = flat(model).size
        optimizer = SubspaceBFGS(Subspace(directions(n, K)), **options)
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    def test_batch_norm_and_seeds_move_once_a_step_as_with_stock_training(self):
        x, y = data()
        model = self.compile(self.build(), sigma=0.99)
        stock = self.build(cls=keras.Model)
        stock.compile(keras.optimizers.SGD(0.0), model.loss)
        history = [
            m.fit(x, y, batch_size=96, shuffle=False, verbose=0).history["loss"][0]
            for m in (model, stock)
        ]
        self.assertGreater(int(model.optimizer.num_trials.numpy()), 1)
        # The reported loss is the loss before the step, including regularizers.
        self.assertNear(*history, 1e-5)
        for a, b in zip(model.non_trainable_variables, stock.non_trainable_variables, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, 1e-6, err_msg=a.path)

    def test_every_trial_sees_the_same_masks_and_the_whole_loss(self):
        x, y = data()
        model = self.compile(self.build())
        losses = []

        def step(loss, gradients, loss_at, data):
            weights = [tf.identity(v.value) for v in model.trainable_variables]
            losses.extend([loss, loss_at(weights, data), loss_at(weights, data)])
            losses.append(loss_at([w + 0.1 for w in weights], data))

        model.optimizer.step = step
        model.run_eagerly = True
        model.fit(x, y, batch_size=96, shuffle=False, verbose=0)
        self.assertAllEqual(losses[0], losses[1])
        self.assertAllEqual(losses[0], losses[2])
        self.assertNotAllClose(losses[0], losses[3])

    def test_models_written_as_classes_train_with_the_mixin(self):
        class Net(SubspaceTrainingMixin, keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(3)

            def call(self, x):
                return self.dense(x)

        x, y = data()
        model = Net()
        model(x[:1])
        self.compile(model)
        losses = model.fit(x, y, batch_size=96, epochs=8, verbose=0).history["loss"]
        self.assertLess(losses[-1], losses[0])

    def test_other_optimizers_train_as_in_a_stock_model(self):
        x, y = data()
        results = []
        for cls in (SubspaceModel, keras.Model):
            model = self.build(cls=cls)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(0.01), loss)
            model.fit(x, y, batch_size=32, shuffle=False, verbose=0)
            results.append(flat(model))
        # Adam divides a gradient by its own size, which magnifies rounding errors of small
        # gradients.
        np.testing.assert_allclose(*results, atol=0.01 * 0.01)


class RefusalsTest(StepTestCase):
    def test_arguments_out_of_range_are_refused(self):
        for options, message in (
            ({"rho": 1.0}, r"`rho` must be in the range \(0, 1\). Received: rho=1.0"),
            ({"sigma": 0}, "`sigma` must be .*sigma=0"),
            ({"max_trials": 0}, "`max_trials` must be .*max_trials=0"),
            ({"on_failure": "stop"}, "`on_failure` must be one of .*'stop'"),
            ({"alpha": -1}, "`alpha` must be .*alpha=-1"),
            ({"gamma": 1}, "`gamma` must be .*gamma=1"),
            ({"residual_every": 0}, "`residual_every` must be a positive integer.*=0"),
            ({"shard_basis": 1}, "`shard_basis` must be a bool.*=1"),
            ({"dtype": "int8"}, "`dtype` must be one of .*'int8'"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, message):
                self.optimizer(**options)
        with self.assertRaisesRegex(TypeError, "momentum"):
            self.optimizer(momentum=0.9)
        with self.assertRaisesRegex(ValueError, "`subspace` must be a Subspace or the path"):
            SubspaceBFGS(self.basis)

    def test_a_basis_of_another_network_is_refused(self):
        optimizer = SubspaceBFGS(Subspace(directions(50, K)))
        with self.assertRaisesRegex(ValueError, "must have the 50 trainable weights"):
            self.fit(subspace_model(optimizer), 1)

    def test_constraints_are_refused(self):
        inputs = keras.Input((4,))
        dense = keras.layers.Dense(11, kernel_constraint="non_neg", use_bias=False)
        model = SubspaceModel(inputs, dense(inputs))
        optimizer = SubspaceBFGS(Subspace(directions(44, K)))
        with self.assertRaisesRegex(ValueError, "must have no constraint"):
            optimizer.build(model.trainable_variables)

    def test_a_stock_model_says_what_is_missing(self):
        self.network.compile(self.optimizer(), "mse")
        with self.assertRaisesRegex(ValueError, "train a SubspaceModel"):
            self.network.fit(self.x, np.zeros((96, 3)), verbose=0)

    def test_a_learning_rate_which_the_search_would_pass_over_is_refused(self):
        refused = "`learning_rate` must be 1 for `SubspaceBFGS`.*=0.5"
        for callback in (
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.5),
            keras.callbacks.ReduceLROnPlateau("loss", 0.5, patience=1, min_delta=1e9),
        ):
            with self.subTest(callback=callback), self.assertRaisesRegex(ValueError, refused):
                self.fit(subspace_model(self.optimizer()), 3, callbacks=[callback])
        optimizer = self.optimizer()
        optimizer.learning_rate = 1.0
        self.assertEqual(float(optimizer.learning_rate), 1)

    def test_weights_that_the_optimizer_was_not_built_with_are_refused(self):
        model = subspace_model(self.optimizer())
        self.fit(model, 1)
        before = flat(model)
        with self.assertRaisesRegex(ValueError, "must be all 4 that the optimizer was built"):
            self.fit(subspace_model(model.optimizer), 1)
        model.layers[1].trainable = False
        model.compile(model.optimizer, model.loss)
        with self.assertRaisesRegex(ValueError, "must be all 4 .* Received: 2 weights"):
            self.fit(model, 1)
        model.layers[1].trainable = True
        np.testing.assert_array_equal(flat(model), before)

    def test_loss_scaling_is_refused(self):
        self.addCleanup(keras.config.set_dtype_policy, "float32")
        keras.config.set_dtype_policy("mixed_float16")
        model = subspace_model(self.optimizer())
        with self.assertRaisesRegex(ValueError, "scales no loss.*mixed_float16"):
            self.fit(model, 1)


class ResumeTest(StepTestCase):
    def setUp(self):
        super().setUp()
        self.folder = new_folder(self)
        self.path = self.folder / "basis.safetensors"
        Subspace(self.basis).save(self.path)

    def model(self, path=None):
        return subspace_model(SubspaceBFGS(path or self.path, alpha=0.01))

    def run_on(self, model):
        self.fit(model, 3, batch_size=32)
        return [v.numpy() for v in model.variables + model.optimizer.variables]

    def test_every_kind_of_file_resumes_bit_for_bit(self):
        model = self.model()
        self.fit(model, 2, batch_size=32)
        model.save(self.folder / "model.keras")
        model.save_weights(self.folder / "model.weights.h5")
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        checkpoint_path = checkpoint.save(os.path.join(self.folder, "checkpoint"))
        expected = self.run_on(model)

        loaded = keras.models.load_model(self.folder / "model.keras")
        self.assertIsInstance(loaded, SubspaceModel)
        self.assertEqual(loaded.optimizer.get_config(), model.optimizer.get_config())
        weights = self.model()
        weights.optimizer.build(weights.trainable_variables)
        weights.load_weights(self.folder / "model.weights.h5")
        restored = self.model()
        restored.optimizer.build(restored.trainable_variables)
        tf.train.Checkpoint(model=restored, optimizer=restored.optimizer).restore(checkpoint_path)
        for resumed in (loaded, weights, restored):
            for a, b in zip(expected, self.run_on(resumed), strict=True):
                np.testing.assert_array_equal(a, b)

    def test_weights_load_without_the_state_before_the_optimizer_is_built(self):
        model = self.model()
        self.fit(model, 1, batch_size=32)
        model.save_weights(self.folder / "model.weights.h5")
        other = self.model()
        # As for a stock optimizer.
        with self.assertWarnsRegex(UserWarning, "Skipping variable loading for optimizer"):
            other.load_weights(self.folder / "model.weights.h5")
        for a, b in zip(model.trainable_variables, other.trainable_variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())

    def test_saved_files_do_not_hold_the_basis(self):
        model = self.model()
        self.fit(model, 1)
        sizes = [np.prod(v.shape) for v in model.optimizer.variables]
        self.assertNotIn(self.basis.size, sizes)

    def test_another_basis_is_refused(self):
        model = self.model()
        self.fit(model, 1)
        model.save(self.folder / "model.keras")
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        checkpoint_path = checkpoint.save(os.path.join(self.folder, "checkpoint"))
        Subspace(directions(43, K, seed=9)).save(self.path)
        with self.assertRaisesRegex(ValueError, "`subspace` must be the one that the model was"):
            keras.models.load_model(self.folder / "model.keras")
        other = self.model()
        other.optimizer.build(other.trainable_variables)
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(checkpoint_path)
        refused = "`subspace` must be the one that the model was saved with"
        with self.assertRaisesRegex(ValueError, refused):
            self.fit(other, 1)

    @pytest.mark.slow
    def test_another_basis_is_refused_between_two_calls_of_fit(self):
        # XLA drops assertions in a step.
        for jit_compile in (False, True):
            optimizer = SubspaceBFGS(self.path)
            model = subspace_model(optimizer, jit_compile=jit_compile)
            self.fit(model, 1)
            optimizer._fingerprint.assign(7)
            with self.assertRaisesRegex(ValueError, "Received: fingerprint="):
                self.fit(model, 1)

    def test_another_basis_is_refused_without_a_subspace_model(self):
        optimizer = SubspaceSGD(Subspace(self.basis))
        self.network.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
        optimizer.build(self.network.trainable_variables)
        own = int(optimizer._fingerprint.numpy())
        optimizer._fingerprint.assign(own + 1)
        with self.assertRaisesRegex(ValueError, "`subspace` must be the one that the model was"):
            self.fit(self.network, 1)
        optimizer._fingerprint.assign(own)
        self.fit(self.network, 1)
        optimizer._fingerprint.assign(own + 1)
        # After tracing, the step itself checks the basis.
        with self.assertRaisesRegex(ValueError, "belongs to another basis"):
            self.fit(self.network, 1)

    def test_a_subspace_without_a_file_cannot_be_saved_with_the_model(self):
        model = subspace_model(self.optimizer())
        with self.assertRaisesRegex(ValueError, "call `subspace.save` first"):
            model.save(self.folder / "model.keras")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

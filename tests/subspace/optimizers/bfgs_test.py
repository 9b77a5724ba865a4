"""Tests of direction and step length, against NumPy and SciPy's conditions."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.subspace.optimizers import bfgs, line_search

SEEDS = st.integers(0, 2**30)


def problem(seed, k):
    """Returns a positive definite matrix, a step and a gradient change with a positive product."""
    rng = np.random.default_rng(seed)
    root, curvature = rng.standard_normal((2, k, k))
    step = rng.standard_normal(k)
    change = (curvature @ curvature.T + np.eye(k)) @ step
    return root @ root.T + np.eye(k), step, change


class UpdateTest(tf.test.TestCase):
    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(SEEDS, st.integers(1, 12))
    def test_update_is_the_formula_symmetric_definite_and_meets_the_secant_equation(self, seed, k):
        matrix, step, change = problem(seed, k)
        updated = bfgs.update_inverse_hessian(*map(tf.constant, (matrix, step, change))).numpy()
        rate = 1 / (step @ change)
        turn = np.eye(k) - rate * np.outer(change, step)
        expected = turn.T @ matrix @ turn + rate * np.outer(step, step)
        np.testing.assert_allclose(updated, expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(updated @ change, step, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(updated, updated.T)
        self.assertGreater(np.linalg.eigvalsh(updated).min(), 0)

    def test_unusable_pairs_leave_the_matrix_as_it_is(self):
        matrix, step, change = problem(0, 5)
        sideways = change - step * (step @ change) / (step @ step)
        for s, y in (
            (0 * step, change),
            (step, -change),
            (step, sideways),
            (step, sideways + 1e-4 * step),
            (step, np.full(5, np.nan)),
            (step, np.full(5, np.inf)),
            (step, 0 * change),
        ):
            with self.subTest(s=s):
                for dtype in (np.float32, np.float64):
                    with self.subTest(dtype=dtype):
                        arguments = [tf.constant(a, dtype) for a in (matrix, s, y)]
                    np.testing.assert_array_equal(
                        bfgs.update_inverse_hessian(*arguments), arguments[0]
                    )

    def test_exact_steps_on_a_quadratic_end_with_the_inverse_hessian(self):
        matrix, _, _ = problem(3, 6)
        point, estimate = tf.constant(np.ones(6)), tf.eye(6, dtype=tf.float64)
        gradient = tf.linalg.matvec(matrix, point)
        for _ in range(6):
            direction, slope, estimate = bfgs.descent_direction(estimate, gradient)
            bend = tf.tensordot(direction, tf.linalg.matvec(matrix, direction), 1)
            step = -slope / bend * direction
            point += step
            change = tf.linalg.matvec(matrix, point) - gradient
            gradient += change
            estimate = bfgs.update_inverse_hessian(estimate, step, change)
        np.testing.assert_allclose(estimate, np.linalg.inv(matrix), rtol=1e-5, atol=1e-6)

    def test_direction_descends_also_with_a_useless_matrix(self):
        gradient = tf.constant([1.0, 2.0])
        direction, slope, matrix = bfgs.descent_direction(tf.constant([[2.0, 0], [0, 1]]), gradient)
        self.assertAllEqual(direction, [-2, -2])
        self.assertAllEqual(slope, -6)
        self.assertAllEqual(matrix, [[2, 0], [0, 1]])
        for bad in (-np.eye(2), np.full((2, 2), np.nan)):
            with self.subTest(bad=bad):
                direction, slope, matrix = bfgs.descent_direction(
                    tf.constant(bad, tf.float32), gradient
                )
                self.assertAllEqual(direction, [-1, -2])
                self.assertAllEqual(slope, -5)
                self.assertAllEqual(matrix, np.eye(2))


class BacktrackTest(tf.test.TestCase):
    def search(self, function, slope, **options):
        options = {"rho": 0.5, "sigma": 0.4, "max_trials": 6, **options}
        tried = []

        def loss_at(factor):
            tried.append(float(factor))
            return function(factor)

        factor, accepted, count = line_search.backtrack(
            loss_at, function(tf.constant(0.0)), tf.constant(slope), **options
        )
        self.assertEqual(len(tried), int(count))
        return float(factor), bool(accepted), tried

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(st.floats(0.05, 50), st.floats(0.1, 0.9), st.floats(0.05, 0.95), st.integers(1, 8))
    def test_the_first_factor_that_meets_the_rule_is_taken(self, bend, rho, sigma, max_trials):
        def function(factor):
            return bend * factor**2 - factor + 3.0

        factor, accepted, tried = self.search(
            function, -1.0, rho=rho, sigma=sigma, max_trials=max_trials
        )
        np.testing.assert_allclose(tried, rho ** np.arange(len(tried)), rtol=1e-5)
        # For this parabola, the rule is `bend * f < 1 - sigma`.
        passes = [bend * f < 1 - sigma for f in tried]
        margin = min(abs(bend * f / (1 - sigma) - 1) for f in tried)
        if margin > 1e-3:  # nearer, float32 rounding decides
            self.assertEqual(passes, [False] * (len(tried) - 1) + [accepted])
        self.assertEqual(factor, tried[-1])
        self.assertTrue(accepted or len(tried) == max_trials)

    def test_losses_that_are_not_numbers_are_refused(self):
        def function(factor):
            return tf.where(factor > 0.3, np.nan, 1.0 - factor)

        self.assertEqual(self.search(function, -1.0), (0.25, True, [1.0, 0.5, 0.25]))
        self.assertFalse(self.search(lambda f: f * np.nan, -1.0)[1])

    def test_graphs_and_eager_agree(self):
        def search(bend):
            return line_search.backtrack(
                lambda f: bend * f**2 - f,
                tf.constant(0.0),
                tf.constant(-1.0),
                rho=0.55,
                sigma=0.4,
                max_trials=10,
            )

        for bend in (0.1, 3.0, 1e9):
            with self.subTest(bend=bend):
                self.assertAllEqual(search(bend), tf.function(search)(tf.constant(bend)))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

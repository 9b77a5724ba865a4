"""Tests of P-BFGS on several replicas of one process."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernaryAllReduce, TernGradStrategy
from tests.subspace.samples import (
    NUM_COMPONENTS,
    build_under,
    data,
    directions,
    flat,
    subspace_optimizer,
)

NUM_REPLICAS = 4
DEVICES = [f"/device:CPU:{i}" for i in range(NUM_REPLICAS)]


class MirroredWithOwnKeys(tf.distribute.MirroredStrategy):
    """Has its own collective keys, which do not clash with stock strategies in other tests."""

    _collective_key_base = 900_000_000


def strategies():
    """Returns all kinds of strategies with float gradients, by name."""
    return {
        "TernGradStrategy": lambda: TernGradStrategy(NUM_REPLICAS, grad_bits=32),
        "MirroredStrategy": lambda: tf.distribute.MirroredStrategy(
            DEVICES[:2], cross_device_ops=tf.distribute.ReductionToOneDevice()
        ),
        "MirroredStrategy with TernaryAllReduce": lambda: MirroredWithOwnKeys(
            DEVICES[:2], cross_device_ops=TernaryAllReduce(grad_bits=32)
        ),
    }


class ReplicasTest(tf.test.TestCase):
    def fit(self, strategy, optimizer, *, epochs=1, batch_size=96, num_examples=96, **options):
        """Trains, and checks that replicas are equal; returns the model and the history."""
        model = build_under(strategy, optimizer, **options)
        x, y = data(num_examples)
        history = model.fit(
            x, y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0
        ).history
        self.assertTrue(np.isfinite(flat(model)).all())
        for variable in model.trainable_variables + model.optimizer.variables:
            copies = strategy.experimental_local_results(variable.value)
            for copy in copies[1:]:
                np.testing.assert_array_equal(copy, copies[0], err_msg=variable.path)
        return model, history

    @pytest.mark.long
    def test_steps_are_those_of_one_replica_with_and_without_momentum_outside(self):
        for alpha in (0.0, 0.05):
            with self.subTest(alpha=alpha):
                changes = {"alpha": alpha, "residual_every": 2, "shard_basis": alpha > 0}
                options = {"optimizer": subspace_optimizer(sigma=0.9, **changes), "epochs": 4}
                expected, history = self.fit(tf.distribute.get_strategy(), **options)
                self.assertGreater(int(expected.optimizer.num_trials.numpy()), 2)
                for name, make in list(strategies().items())[: None if alpha else 2]:
                    model, own = self.fit(make(), **options)
                    np.testing.assert_allclose(flat(model), flat(expected), atol=1e-4, err_msg=name)
                    for key in history:
                        np.testing.assert_allclose(own[key], history[key], atol=1e-4, err_msg=name)
                    np.testing.assert_array_equal(
                        model.optimizer.num_trials.numpy(), expected.optimizer.num_trials.numpy()
                    )

    def test_replicas_stay_equal_with_batch_norm_dropout_and_uneven_batches(self):
        # Four replicas share a last batch of two examples.
        options = {"batch_size": 32, "num_examples": 98, "dropout": 0.3, "batch_norm": True}
        first, history = self.fit(TernGradStrategy(NUM_REPLICAS), subspace_optimizer(), **options)
        self.assertEqual(int(first.optimizer.iterations.numpy()), 4)
        again, _ = self.fit(TernGradStrategy(NUM_REPLICAS), subspace_optimizer(), **options)
        np.testing.assert_array_equal(flat(first), flat(again))

    @pytest.mark.slow
    def test_several_steps_per_execution_give_the_same(self):
        results = [
            flat(
                self.fit(
                    TernGradStrategy(NUM_REPLICAS), subspace_optimizer(), batch_size=24, **options
                )[0]
            )
            for options in ({}, {"steps_per_execution": 2})
        ]
        np.testing.assert_allclose(*results, atol=1e-4)

    @pytest.mark.slow
    def test_replicas_without_examples_do_not_count(self):
        """Compares two examples on four replicas with one replica."""
        gradients = [
            self.fit(strategy, subspace_optimizer(), num_examples=2)[
                0
            ].optimizer._last_gradient.numpy()
            for strategy in (TernGradStrategy(NUM_REPLICAS), tf.distribute.get_strategy())
        ]
        np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)

    @pytest.mark.slow
    def test_ternary_gradients_outside_leave_the_subspace_exact(self):
        """The coordinates move by the float step, for any rounding outside."""
        moves = {}
        for bits in (1, 32):
            strategy = TernGradStrategy(NUM_REPLICAS, grad_bits=bits)
            start = flat(build_under(strategy, subspace_optimizer()))
            model, _ = self.fit(strategy, subspace_optimizer(alpha=0.05))
            moves[bits] = flat(model) - start
        basis = directions(len(start), NUM_COMPONENTS)
        np.testing.assert_allclose(basis @ moves[1], basis @ moves[32], atol=1e-5)
        self.assertNotAllClose(moves[1], moves[32])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

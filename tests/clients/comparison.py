"""Runs a program with and without a strategy and compares the results."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy


class ClientTest(tf.test.TestCase):
    """Programs compute the same on several replicas with float gradients as without a strategy.

    A program is a function of a strategy. It makes its model in the strategy's scope, trains on the
    same total batch, and returns a structure of numbers. `num_replicas` lists numbers of replicas.
    """

    num_replicas = ()

    def assert_same_without_strategy(self, programs):
        for program in programs:
            with self.subTest(case=program.__name__):
                with reads_before_updates():
                    expected = self.run_program(program, tf.distribute.get_strategy())
                self.assertNotEmpty(keras.tree.flatten(expected))
                for count in self.num_replicas:
                    got = self.run_program(program, TernGradStrategy(count, grad_bits=32))
                    assert_close(got, expected, f"with {count} replicas")

    def run_program(self, program, strategy):
        # To collect garbage takes up to a second; once a program is enough.
        is_first = not isinstance(strategy, TernGradStrategy)
        keras.utils.clear_session(free_memory=is_first)
        keras.utils.set_random_seed(1)
        return keras.tree.map_structure(np.asarray, program(strategy))


@contextlib.contextmanager
def reads_before_updates():
    """Has functions that are traced here read variables before they update them.

    TensorFlow drops this order if a gradient follows from the shape of what was read, as for
    `weights[1]`. Rarely, a plain step then reads a weight that it has updated.
    """
    tf.config.optimizer.set_experimental_options({"dependency_optimization": False})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"dependency_optimization": True})


def assert_close(got, expected, message):
    """Asserts that numbers are equal up to the order of float32 additions."""
    keras.tree.assert_same_structure(expected, got)
    for (path, a), b in zip(
        keras.tree.flatten_with_path(expected), keras.tree.flatten(got), strict=True
    ):
        place = "/".join(map(str, path))
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5, err_msg=f"{place} {message}")


def numbers(*shape, seed=0):
    """Returns float32 numbers between -1 and 1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def weights(model):
    return [weight.numpy() for weight in model.weights]


def fit(model, *data, batch_size=8, epochs=2, **options):
    """Trains; returns the history and the final weights."""
    history = model.fit(
        *data, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0, **options
    )
    return {"history": history.history, "weights": weights(model)}

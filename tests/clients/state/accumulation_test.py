"""Accumulated gradients resume exactly from files, with any number of replicas."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy, private
from tests.clients.state import accumulation_cases as cases


def strategy_of(num_replicas):
    """Returns the default strategy for 0 replicas."""
    if not num_replicas:
        return tf.distribute.get_strategy()
    return TernGradStrategy(num_replicas, grad_bits=32)


class AccumulationTest(tf.test.TestCase, parameterized.TestCase):
    def check(self, way, before, after, optimizer=cases.momentum):
        expected = cases.train(strategy_of(0), optimizer)
        folder = self.get_temp_dir()
        for count in before:
            cases.stop(strategy_of(count), way, folder, optimizer)
            for next_count in after:
                got = cases.go_on(strategy_of(next_count), way, folder, optimizer)
                self.assertAllClose(
                    got, expected, rtol=1e-5, atol=1e-6, msg=f"from {count} to {next_count}"
                )

    @pytest.mark.slow
    def test_two_replicas_resume_from_a_keras_file(self):
        self.check("keras", before=[2], after=[2])

    @parameterized.parameters(*cases.WAYS)
    @pytest.mark.long
    def test_some_numbers_of_replicas_resume_from_each_others_files(self, way):
        self.check(way, before=[0, 4], after=[0, 2])

    @parameterized.parameters(*cases.WAYS)
    @pytest.mark.long
    def test_all_numbers_of_replicas_resume_from_each_others_files(self, way):
        self.check(way, before=[0, 2, 4], after=[0, 1, 2, 4])

    @pytest.mark.long
    def test_a_scaled_loss_resumes_from_a_checkpoint(self):
        self.check("checkpoint", before=[2], after=[4], optimizer=cases.scaled)

    def test_all_parts_of_an_optimizer_accumulate(self):
        strategy = TernGradStrategy(2)
        for optimizer in (cases.momentum, cases.scaled, cases.several):
            model = cases.make(strategy, optimizer)
            with strategy.scope():
                model.optimizer.build(model.trainable_variables)
            found = {v.path for v in private.accumulators_of(model.optimizer)}
            named = {v.path for v in model.optimizer.variables if "accumulator" in v.name}
            self.assertLen(found, 4)
            self.assertEqual(found, named)
        self.assertEqual(private.accumulators_of(None), [])

    def test_loading_replaces_accumulated_gradients(self):
        strategy = strategy_of(2)
        model = cases.make(strategy)
        cases.fit(model, 0, 1)
        folder = self.get_temp_dir()
        cases.save(model, "weights", folder)
        saved = [v.numpy() for v in model.optimizer.variables]
        cases.fit(model, 1, 2)
        model.load_weights(cases.file_of("weights", folder))
        for variable, value in zip(model.optimizer.variables, saved, strict=True):
            self.assertAllClose(variable, value)
        accumulated = [v for v in model.optimizer.variables if "accumulator" in v.name]
        self.assertLen(accumulated, 4)
        self.assertTrue(all(np.any(v.numpy()) for v in accumulated))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

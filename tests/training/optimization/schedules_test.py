"""Learning rates over steps."""

import sys

import hypothesis
import keras
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from terngrad_tf.training import OptimizerConfig
from terngrad_tf.training.optimization import schedules


def build(decay_type, **changes):
    values = {"num_epochs_per_decay": 2.1, "learning_rate_decay_factor": 0.5}
    if decay_type == "linear" and changes.get("name") != "adam":
        values |= {"warmup_epochs": 4.0, "decay_epochs": 70.0}
    values |= changes
    config = OptimizerConfig(learning_rate_decay_type=decay_type, **values)
    return schedules.build_schedule(config, max_steps=1000, steps_per_epoch=12.5)


class SchedulesTest(tf.test.TestCase):
    @hypothesis.settings(deadline=None, max_examples=30, derandomize=True)
    @hypothesis.given(step=st.integers(0, 999))
    def test_every_type_follows_its_formula(self, step):
        formulas = {
            "fixed": 0.01,
            "exponential": 0.01 * 0.5 ** (step // 26),
            "linear": 0.01 * min(step / 50, (875 - step) / 825) if step < 875 else 0.0,
            "polynomial": 0.01 * (1 - step / 1000) ** 0.5,
        }
        self.assertEqual(sorted(formulas), schedules.available())
        for decay_type, expected in formulas.items():
            rate = build(decay_type)(tf.constant(step, tf.int64))
            self.assertAllClose(float(rate), expected, rtol=1e-4, atol=1e-9, msg=decay_type)

    def test_decays_follow_whole_epochs(self):
        # In floats, 7 epochs of 60000 / 56 steps have less than 7500 steps.
        config = OptimizerConfig(num_epochs_per_decay=7.0)
        rate = schedules.build_schedule(config, max_steps=9000, steps_per_epoch=60000 / 56)
        self.assertAllClose([float(rate(step)) for step in (7499, 7500)], [0.01, 0.001])

    def test_without_warm_up_a_line_starts_at_the_full_rate_and_ends_with_the_run(self):
        rate = build("linear", warmup_epochs=0.0, decay_epochs=None)
        self.assertAllClose([float(rate(step)) for step in (0, 500, 1000)], [0.01, 0.005, 0.0])

    def test_adam_keeps_the_initial_rate(self):
        for decay_type in schedules.available():
            self.assertAllClose(float(build(decay_type, name="adam")(999)), 0.01)

    def test_a_schedule_made_from_its_config_is_equal(self):
        for decay_type in schedules.available():
            schedule = build(decay_type)
            copy = keras.saving.deserialize_keras_object(
                keras.saving.serialize_keras_object(schedule)
            )
            self.assertEqual(float(copy(500)), float(schedule(500)))

    def test_bad_arguments_are_refused_by_name_and_value(self):
        with self.assertRaisesRegex(ValueError, "decay_type` must be one of .*'polynomial'"):
            build("polynomal")
        with self.assertRaisesRegex(ValueError, "`learning_rate_decay_factor` .*factor=0"):
            build("exponential", learning_rate_decay_factor=0.0)
        with self.assertRaisesRegex(ValueError, "`warmup_epochs` .* 70 epochs.*epochs=70"):
            build("linear", warmup_epochs=70)
        with self.assertRaisesRegex(ValueError, "`num_epochs_per_decay` .*decay=0.01"):
            build("exponential", num_epochs_per_decay=0.01)
        with self.assertRaisesRegex(ValueError, "`initial_learning_rate` .*rate=nan"):
            build("fixed", initial_learning_rate=float("nan"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

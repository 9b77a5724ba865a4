"""Replicas draw different random numbers from one state."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from tests.distribute.samples import draw_masks


class DropoutTest(tf.test.TestCase):
    def test_replicas_draw_different_masks_from_equal_states(self):
        masks, states = draw_masks(TernGradStrategy(4))
        self.assertLen(np.unique(masks.reshape([8, -1]), axis=0), 8)
        self.assertAllEqual(states, [states[0]] * len(states))
        # Half of 512 elements dropped, within 5 standard deviations.
        self.assertBetween(np.count_nonzero(masks == 0), 200, 312)

    def test_the_same_seed_gives_the_same_masks(self):
        self.assertAllEqual(draw_masks(TernGradStrategy(2))[0], draw_masks(TernGradStrategy(2))[0])

    def test_the_first_replica_draws_what_a_single_replica_draws(self):
        alone, _ = draw_masks(tf.distribute.get_strategy())
        self.assertAllEqual(draw_masks(TernGradStrategy(3))[0][:, 0], alone[:, 0])

    def test_a_stock_strategy_is_left_as_it_is(self):
        TernGradStrategy(1)
        stock = tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
        )
        masks, _ = draw_masks(stock)
        self.assertAllEqual(masks[:, 0], masks[:, 1])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Each copy of a weight has the slots of the weight."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import AbsAdam, DiLoCo, TernGradStrategy
from terngrad_tf.distribute.slots import Slots


class SlotsTest(tf.test.TestCase):
    def test_each_copy_of_a_weight_has_the_slots_of_the_weight(self):
        for strategy in (tf.distribute.get_strategy(), TernGradStrategy(2)):
            with strategy.scope():
                weights = [keras.Variable(tf.ones([3])), keras.Variable(tf.ones([3]))]
                lists = [[tf.Variable(0.0) for _ in weights] for _ in range(2)]
            slots = Slots(weights, *lists)
            for weight, own in zip(weights, zip(*lists, strict=True), strict=True):
                found = [slots.of(weight), slots.of(weight.value)]
                strategy.extended.update(
                    weight.value, lambda copy, f=found, s=slots: f.append(s.of(copy))
                )
                self.assertGreaterEqual(len(found), 3)
                for each in found:
                    self.assertIs(each[0], own[0])
                    self.assertIs(each[1], own[1])

    def test_lists_of_another_length_are_refused(self):
        with self.assertRaisesRegex(ValueError, "shorter"):
            Slots([tf.Variable(1.0), tf.Variable(1.0)], [tf.Variable(0.0)])

    def test_an_optimizer_with_slots_takes_local_steps_as_it_would_alone(self):
        gradients = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
        alone = keras.Variable(tf.ones([4]))
        optimizer = AbsAdam(0.1)
        for gradient in gradients:
            optimizer.apply([tf.constant(gradient)], [alone])
        strategy = TernGradStrategy(1, grad_bits=32)
        with strategy.scope():
            weight = keras.Variable(tf.ones([4]))
            local = DiLoCo(AbsAdam(0.1), 3, outer=keras.optimizers.SGD(1.0))
            local.build([weight])
        for gradient in gradients:
            strategy.run(lambda g=gradient: local.apply([tf.constant(g)], [weight]))
        self.assertAllClose(weight.numpy(), alone.numpy(), rtol=1e-6)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

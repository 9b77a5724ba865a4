"""Tests of second moments without the noise of rounding."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf import ternary
from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.ternary import rotation
from tests.distribute import second_moments_oracle as oracle

# The last of blocks that are not full, a whole one and a rest, and one of few elements.
SHAPES = ((40, 30), (2048,), (5,))
NUM_REPLICAS = 3
NUM_STEPS = 4


def gradients_of(step):
    """One list for each replica."""
    rng = np.random.default_rng(step)
    signal = [rng.standard_normal(shape) * 0.3 for shape in SHAPES]
    return [
        [(s + rng.standard_normal(s.shape)).astype(np.float32) * 0.1 for s in signal]
        for _ in range(NUM_REPLICAS)
    ]


def weights_of(shape):
    return np.random.default_rng(9).standard_normal(shape)


def train(
    make_optimizer,
    num_steps=NUM_STEPS,
    at_step=lambda k, optimizer: None,
    start=weights_of,
    **options,
):
    """Weights after steps with given gradients, and the optimizer."""
    strategy = TernGradStrategy(NUM_REPLICAS, seed=2, **{"rotate": True, **options})
    with strategy.scope():
        variables = [
            keras.Variable(start(shape), dtype="float32", name=f"w{i}")
            for i, shape in enumerate(SHAPES)
        ]
        optimizer = make_optimizer()
        optimizer.build(variables)

    @tf.function
    def step(gradients):
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            optimizer.apply(
                [tf.gather(of_replicas, number) for of_replicas in gradients], variables
            )

        strategy.run(replica)

    for k in range(num_steps):
        step([tf.stack(of_replicas) for of_replicas in zip(*gradients_of(k), strict=True)])
        at_step(k, optimizer)
    return [v.numpy() for v in variables], optimizer


def exchanged(num_steps=NUM_STEPS):
    """What replicas receive in each step, and the variance of the noise in each of its elements."""
    received = []

    def take(k, optimizer):
        received.append([-weight.numpy() for weight in optimizer._trainable_variables])
        for weight in optimizer._trainable_variables:
            weight.assign(tf.zeros(weight.shape))

    train(lambda: keras.optimizers.SGD(1.0), num_steps, take, start=np.zeros)
    return [[*zip(sums, noise_of(k), strict=True)] for k, sums in enumerate(received)]


def noise_of(step):
    unit = NUM_REPLICAS * ternary.rounding_noise(1, NUM_REPLICAS, "correlated")
    result = []
    for of_replicas in zip(*gradients_of(step), strict=True):
        flat = np.reshape(of_replicas, [NUM_REPLICAS, -1]).astype(np.float64)
        noise, start = [], 0
        for size in rotation.block_sizes(flat.shape[1]):
            block = flat[:, start : start + size]
            square = np.max(np.sum(block**2, 1)) / size
            noise.append(np.full(block.shape[1], unit * rotation.scale_factor(1) ** 2 * square))
            start += size
        result.append(np.concatenate(noise).reshape(of_replicas[0].shape))
    return result


def _rmsprop(name, **options):
    return [(name, keras.optimizers.RMSprop, options, oracle.rmsprop, options)]


class OptimizersTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.steps = exchanged()

    @parameterized.named_parameters(
        ("Adam", keras.optimizers.Adam, {}, oracle.adam, {}),
        ("amsgrad", keras.optimizers.Adam, {"amsgrad": True}, oracle.adam, {"amsgrad": True}),
        ("Nadam", keras.optimizers.Nadam, {}, oracle.adam, {"kind": "nadam"}),
        ("Lamb", keras.optimizers.Lamb, {}, oracle.lamb, {}),
        ("RMSprop", keras.optimizers.RMSprop, {}, oracle.rmsprop, {}),
        *_rmsprop("RMSprop with momentum", momentum=0.5),
        *_rmsprop("RMSprop, centered", centered=True, rho=0.8),
        ("Adagrad", keras.optimizers.Adagrad, {}, oracle.adagrad, {}),
        ("Adamax", keras.optimizers.Adamax, {}, oracle.adamax, {}),
        ("Adafactor", keras.optimizers.Adafactor, {}, oracle.adafactor, {}),
        ("SGD", keras.optimizers.SGD, {}, oracle.sgd, {}),
    )
    def test_update_is_by_squares_without_noise(self, kind, options, reference, how):
        weights, optimizer = train(lambda: kind(0.01, **options))
        for i, shape in enumerate(SHAPES):
            with self.subTest(shape=shape):
                of_weight = [step[i] for step in self.steps]
                want, slots = reference(weights_of(shape), of_weight, **how)
                self.assertAllClose(weights[i], want, rtol=1e-5, atol=1e-5)
                for name, value in slots.items():
                    found = [v for v in optimizer.variables if v.name.endswith(f"w{i}_{name}")]
                    self.assertAllClose(found[0].numpy(), value, rtol=1e-5, atol=1e-8)

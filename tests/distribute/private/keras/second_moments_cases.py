"""Optimizers with given gradients, what the exchange makes of these, and its noise."""

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.ternary import rotation
from tests.distribute import strategy_options

# A whole block and a rest, whole blocks, and a block of few elements.
SHAPES = ((40, 30), (2048,), (5,))
# Sizes of their gradients; these differ between blocks.
_SIZES = (0.1, np.repeat([0.05, 0.2], 1024), 0.02)
NUM_REPLICAS = 2
NUM_STEPS = 4


def batches(num_steps=NUM_STEPS):
    """Gradients as lists of arrays, `[step][replica][weight]`."""
    result = []
    for step in range(num_steps):
        rng = np.random.default_rng(step)
        signal = [rng.standard_normal(shape) * 0.3 for shape in SHAPES]
        result.append(
            [
                [
                    (size * (s + rng.standard_normal(s.shape))).astype(np.float32)
                    for s, size in zip(signal, _SIZES, strict=True)
                ]
                for _ in range(NUM_REPLICAS)
            ]
        )
    return result


def weights_of(shape):
    return np.random.default_rng(9).standard_normal(shape).astype(np.float32)


def make(make_optimizer, num_local=NUM_REPLICAS, start=weights_of, names=None, **options):
    """An optimizer built for weights under a strategy, and a function that takes a step with it."""
    strategy = TernGradStrategy(
        num_local, **strategy_options.arguments(**{"rotate": True, "seed": 2, **options})
    )
    names = names or [f"w{i}" for i in range(len(SHAPES))]
    with strategy.scope():
        variables = [
            keras.Variable(start(shape), dtype="float32", name=name)
            for shape, name in zip(SHAPES, names, strict=True)
        ]
        optimizer = make_optimizer()
        optimizer.build(variables)

    @tf.function
    def step(gradients):
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            optimizer.apply([tf.gather(g, number) for g in gradients], variables)

        strategy.run(replica)

    def take(batch):
        step([tf.stack(of_replicas) for of_replicas in zip(*batch, strict=True)])
        return [v.numpy() for v in variables]

    return variables, optimizer, take


def train(make_optimizer, given=None, **options):
    """Weights after steps, and the optimizer."""
    variables, optimizer, take = make(make_optimizer, **options)
    for batch in batches() if given is None else given:
        take(batch)
    return [v.numpy() for v in variables], optimizer


def received(given, **options):
    """The sums that replicas receive in each step, and the noise variance of each element."""
    variables, _, take = make(lambda: keras.optimizers.SGD(1.0), start=np.zeros, **options)
    result = []
    for batch in given:
        sums = [-w for w in take(batch)]
        result.append([*zip(sums, noise_of(batch), strict=True)])
        for variable in variables:
            variable.assign(tf.zeros(variable.shape))
    return result


def noise_of(batch):
    """Variances of the noise of ternary codes, block by block."""
    result = []
    for of_replicas in zip(*batch, strict=True):
        flat = np.reshape(of_replicas, [len(batch), -1]).astype(np.float64)
        noise, start = [], 0
        for size in rotation.block_sizes(flat.shape[1]):
            block = flat[:, start : start + size]
            own = rotation.scale_factor(1) * np.sqrt(np.sum(block**2, 1, keepdims=True) / size)
            own = own.astype(np.float32)
            how = {"levels": 1, "rounding": "correlated"}
            of_unit = ternary.noise_of_sums(own.max(0), own, len(batch), **how)
            noise.append(np.full(block.shape[1], float(of_unit[0]) * np.max(own) ** 2))
            start += size
        result.append(np.concatenate(noise).reshape(of_replicas[0].shape))
    return result

"""Data, a model and gradients that several tests share."""

import keras
import numpy as np
import tensorflow as tf

SHAPES = ((3, 3, 1, 40), (40,), (1,), (700, 30))


def gradients_of(replica, dtype=np.float32):
    """One gradient for each of `SHAPES`, different for every replica."""
    rng = np.random.default_rng(replica)
    return [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]


def reduce_once(strategy, gradients, names=None, optimizer=None):
    """Sums given gradients (one list per replica) through an optimizer.

    SGD with rate 1 on zero weights leaves minus the sum in the weights. All local copies must be
    equal.
    """
    with strategy.scope():
        names = names or [f"v{i}" for i in range(len(gradients[0]))]
        variables = [
            keras.Variable(tf.zeros(g.shape), name=name)
            for g, name in zip(gradients[0], names, strict=True)
        ]
        optimizer = optimizer or keras.optimizers.SGD(1.0)
        optimizer.build(variables)

    @tf.function
    def step():
        def replica():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = [
                tf.gather(tf.stack([g[i] for g in gradients]), replica)
                for i in range(len(variables))
            ]
            optimizer.apply(mine, variables)

        strategy.run(replica)

    step()
    copies = [[v.numpy() for v in variable.value.values] for variable in variables]
    for values in copies:
        for value in values[1:]:
            np.testing.assert_array_equal(values[0], value)
    return [-values[0] for values in copies]


def data(num_examples=130, seed=0):
    """Small images with a label that can be learned."""
    rng = np.random.default_rng(seed)
    x = rng.random((num_examples, 8, 8, 1)).astype(np.float32)
    return x, (x.mean((1, 2, 3), np.float64) * 40).astype(np.int32) % 3


def build(strategy, *, synchronized=False, dropout=0.2, optimizer=None, **compile_options):
    """A small network with batch norm and dropout, compiled under `strategy`."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((8, 8, 1)),
                keras.layers.Conv2D(4, 3),
                keras.layers.BatchNormalization(synchronized=synchronized),
                keras.layers.ReLU(),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dropout(dropout),
                keras.layers.Dense(3, dtype="float32", name="logits"),
            ]
        )
        model.compile(
            optimizer() if optimizer else keras.optimizers.SGD(0.1, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **compile_options,
        )
    return model


def draw_masks(strategy, steps=2):
    """A dropout layer's results for ones, `[steps, local replicas, 64]`, and its final states."""
    with strategy.scope():
        layer = keras.layers.Dropout(0.5, seed=11)

    @tf.function
    def step():
        return strategy.run(lambda: layer(tf.ones([64]), training=True))

    drawn = [np.stack(strategy.experimental_local_results(step())) for _ in range(steps)]
    state = layer.seed_generator.state.value
    return np.stack(drawn), np.stack(strategy.experimental_local_results(state))


def aligned(values):
    """Returns float32 numbers in memory that TensorFlow uses for tensors without a copy."""
    flat = np.zeros(values.size + 16, np.float32)
    start = -flat.ctypes.data // flat.itemsize % 16
    array = flat[start : start + values.size].reshape(values.shape)
    array[...] = values
    return array

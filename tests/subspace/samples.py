"""Small networks and trajectories for several tests."""

import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.subspace import Subspace, SubspaceBFGS, SubspaceModel
from terngrad_tf.subspace.weights import snapshot_files

NUM_COMPONENTS = 6


def build(seed=0, width=5):
    """Returns a small dense classifier of 4 inputs and 3 classes, compiled with SGD."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(width, activation="tanh"),
            keras.layers.Dense(3, name="logits"),
        ]
    )
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def data(num_examples=96, seed=0):
    """Returns examples with a learnable label."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_examples, 4)).astype(np.float32)
    return x, (x @ rng.standard_normal((4, 3))).argmax(1).astype(np.int32)


def new_folder(test):
    """Returns the path of an empty folder that the test removes."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    return pathlib.Path(folder.name)


def flat(model):
    """Returns all trainable weights as one vector."""
    return np.concatenate([v.numpy().ravel() for v in model.trainable_variables])


def assign_flat(model, vector):
    """Sets the trainable weights; the inverse of `flat`."""
    start = 0
    for variable in model.trainable_variables:
        size = int(np.prod(variable.shape))
        variable.assign(np.reshape(vector[start : start + size], variable.shape))
        start += size


def trajectory(num_snapshots, length, seed=0, decay=0.7):
    """Returns a random walk whose variances fall by `decay` per direction."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((num_snapshots, length))
    scales = decay ** np.arange(num_snapshots)
    walk = rng.standard_normal((num_snapshots, num_snapshots)) * scales
    return (walk @ directions + rng.standard_normal(length)).astype(np.float32)


def write_trajectory(directory, model, matrix):
    """Writes each row of `matrix`, [snapshots, weights], as a snapshot of `model`."""
    before = flat(model)
    for step, row in enumerate(matrix):
        assign_flat(model, row)
        snapshot_files.save_snapshot(model, directory, step)
    assign_flat(model, before)


def directions(num_weights, k, seed=0):
    """Returns a float32 basis [k, num_weights] with orthonormal rows."""
    rng = np.random.default_rng(seed)
    return np.linalg.qr(rng.standard_normal((num_weights, k)))[0].T.astype(np.float32)


def loss_and_gradient(model, x, y):
    """Returns the loss and gradient of `model` as functions of a weight vector."""

    def evaluate(vector):
        assign_flat(model, vector)
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        return float(loss), np.concatenate([np.ravel(g) for g in gradients]).astype(np.float64)

    return (lambda vector: evaluate(vector)[0]), (lambda vector: evaluate(vector)[1])


def subspace_optimizer(**options):
    """Returns a function from a number of weights to a `SubspaceBFGS` in a random subspace."""
    return lambda n: SubspaceBFGS(Subspace(directions(n, NUM_COMPONENTS)), **options)


def build_under(strategy, optimizer, *, dropout=0.0, batch_norm=False, **compile_options):
    """Returns a small network with a regularizer, compiled under a strategy.

    `optimizer` is a function of the number of weights.
    """
    keras.utils.set_random_seed(1)
    with strategy.scope():
        inputs = keras.Input((4,))
        x = keras.layers.Dense(5, kernel_regularizer=keras.regularizers.L2(0.01))(inputs)
        x = keras.layers.BatchNormalization()(x) if batch_norm else x
        x = keras.layers.Activation("tanh")(x)
        x = keras.layers.Dropout(dropout, seed=4)(x) if dropout else x
        model = SubspaceModel(inputs, keras.layers.Dense(3, name="logits")(x))
        model.compile(
            optimizer(flat(model).size),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **compile_options,
        )
    return model

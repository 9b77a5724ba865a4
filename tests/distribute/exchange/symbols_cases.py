"""Gradients of a language model that tests exchange in one process or, as a program, in several."""

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from tests.distribute import processes

SYMBOLS, WIDTH = 50, 32
# Of an embedding, a hidden layer and logits.
NAMES = ("embeddings", "kernel", "bias", "logits_kernel", "logits_bias")
SHAPES = ((SYMBOLS, WIDTH), (WIDTH, WIDTH), (WIDTH,), (WIDTH, SYMBOLS), (SYMBOLS,))
LANGUAGE = (
    {},
    {"grad_bits": 2},
    {"wire": "bidirectional"},
    {"sparse_as_dense": False},
    {"sparse_as_dense": True},
)


def gradient(replica, position):
    """A replica's gradient of the variable at a position; the embedding's has a row a symbol."""
    return np.random.default_rng([replica, position]).normal(size=SHAPES[position]).astype("f")


def sums(num_replicas):
    """The sums of all replicas' gradients."""
    return [sum(gradient(k, i) for k in range(num_replicas)) for i in range(len(SHAPES))]


def exchange(strategy, num_classes=SYMBOLS, make=None, steps=1, whole=False):
    """The changes of the variables by steps of an optimizer.

    `make` returns the optimizer, by default SGD at rate 1. With fewer classes than symbols, the
    model is a classifier of text. If `whole`, the embedding's gradient is dense, as if the
    embedding were the last layer, too.
    """
    shapes = [tuple(num_classes if n == SYMBOLS else n for n in shape) for shape in SHAPES]
    shapes[0] = SHAPES[0]
    with strategy.scope():
        variables = [
            keras.Variable(tf.zeros(shape), name=name)
            for name, shape in zip(NAMES, shapes, strict=True)
        ]
        optimizer = make() if make else keras.optimizers.SGD(1.0)
        optimizer.build(variables)
    of_replicas = [
        tf.constant(
            [gradient(k, i)[..., : shape[-1]] for k in range(strategy.num_replicas_in_sync)]
        )
        for i, shape in enumerate(shapes)
    ]

    @tf.function
    def step():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            rows, *dense = (of_all[number] for of_all in of_replicas)
            slices = tf.IndexedSlices(rows, tf.range(SYMBOLS), tf.constant(SHAPES[0]))
            optimizer.apply([rows if whole else slices, *dense], variables)

        strategy.run(replica)

    for _ in range(steps):
        step()
    return [-variable.numpy() for variable in variables]


def work(config):
    """A process's changes for each set of options, and bytes as counted and as measured."""
    del config
    results = {}
    for index, options in enumerate(LANGUAGE):
        strategy = TernGradStrategy(1, telemetry_freq=1, **options)
        for i, change in enumerate(exchange(strategy)):
            results[f"{index}/{i}"] = change
        last = strategy.telemetry.last
        results[f"{index}/bytes"] = [strategy.traffic.received_bytes, last.received_bytes]
    return results


if __name__ == "__main__":
    processes.main({"work": work})

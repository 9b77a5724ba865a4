"""A worker of the cluster benchmark under TensorFlow: one process per host, TF_CONFIG set.

`benchmarks.cluster` runs it: MODES MODEL INTERFACE THREADS BATCH_SIZE, with commas between modes.
"""

import functools
import sys

from benchmarks.cluster import models
from benchmarks.lib import step_server

# Local steps to an exchange.
SYNC_EVERY = 32
# While changes travel, in "local_steps_overlap".
OVERLAP = 24


def _network():
    import keras

    return keras.Sequential(
        [
            keras.layers.Input((models.IMAGE, models.IMAGE, 1)),
            keras.layers.Conv2D(models.FILTERS, 3, padding="same", use_bias=True),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(models.HIDDEN, "relu"),
            keras.layers.Dense(models.CLASSES),
        ]
    )


def digits_step(strategy, batch_size, sync_every, overlap=0):
    """Returns a function that runs one training step of the digits' network."""
    import keras
    import tensorflow as tf

    with strategy.scope():
        model = _network()
        optimizer = _optimizer(sync_every, overlap)
        optimizer.build(model.trainable_variables)
    images = tf.random.stateless_uniform([batch_size, *model.input_shape[1:]], [0, 0])
    labels = tf.range(batch_size) % models.CLASSES
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def replica():
        with tf.GradientTape() as tape:
            # Keras' losses are already divided by the number of replicas.
            loss = loss_of(labels, model(images, training=True))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    return _compiled(strategy, replica, optimizer, sync_every)


@functools.cache
def _alexnet_factors():
    import tensorflow as tf

    shapes = models.ALEXNET_SHAPES
    return [tf.random.stateless_normal(shape, [0, i]) for i, shape in enumerate(shapes)]


def _alexnet_step(strategy, _, sync_every, overlap=0):
    import keras
    import tensorflow as tf

    with strategy.scope():
        variables = [keras.Variable(tf.zeros(s)) for s in models.ALEXNET_SHAPES]
        optimizer = _optimizer(sync_every, overlap)
        optimizer.build(variables)
    factors = _alexnet_factors()

    def replica():
        with tf.GradientTape() as tape:
            loss = tf.add_n(
                [tf.reduce_sum(v.value * f) for v, f in zip(variables, factors, strict=True)]
            )
        gradients = tape.gradient(loss, [v.value for v in variables])
        optimizer.apply(gradients, variables)

    return _compiled(strategy, replica, optimizer, sync_every)


def _optimizer(sync_every, overlap):
    import keras

    from terngrad_tf import DiLoCo

    optimizer = keras.optimizers.SGD(0.01)
    return DiLoCo(optimizer, sync_every, overlap=overlap) if sync_every else optimizer


def _compiled(strategy, replica, optimizer, sync_every):
    import tensorflow as tf

    @tf.function
    def step():
        strategy.run(replica)

    def run():
        for _ in range(max(1, sync_every)):
            step()
        # The step assigns the counter last, on the host.
        optimizer.iterations.numpy()

    run.num_steps = max(1, sync_every)
    if sync_every and optimizer.overlap:
        # Begin and end without an exchange in progress.
        for _ in range((sync_every + optimizer.overlap) // 2):
            step()
    return run


def main(argv):
    """Runs the worker; `argv` is its command line."""
    import tensorflow as tf

    from terngrad_tf.distribute import Quantization, TernGradStrategy

    modes, model, interface, threads, batch_size = argv[1:]
    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    make_strategy = {
        "ternary": TernGradStrategy,
        "bidirectional": lambda: TernGradStrategy(wire="bidirectional"),
        "four_bits": lambda: TernGradStrategy(grad_bits=4),
        "auto": lambda: TernGradStrategy(grad_bits="auto"),
        "unrotated": lambda: TernGradStrategy(quantization=Quantization(rotate=False)),
        # Few codes are not 0, as the streams need.
        "unclipped": lambda: TernGradStrategy(
            quantization=Quantization(rotate=False, clip_factor=0.0)
        ),
        "sparse": lambda: TernGradStrategy(
            wire="sparse", quantization=Quantization(rotate=False, clip_factor=0.0)
        ),
        "sparse_bidirectional": lambda: TernGradStrategy(
            wire="sparse_bidirectional", quantization=Quantization(rotate=False, clip_factor=0.0)
        ),
        "local_steps": TernGradStrategy,
        "local_steps_overlap": TernGradStrategy,
        "float32": lambda: TernGradStrategy(grad_bits=32),
        "tensorflow": tf.distribute.MultiWorkerMirroredStrategy,
        # The same step without an exchange.
        "no_exchange": tf.distribute.get_strategy,
    }
    make_step = {"digits": digits_step, "alexnet": _alexnet_step}[model]
    strategies = {mode: make_strategy[mode]() for mode in modes.split(",")}
    local = {"local_steps": (SYNC_EVERY,), "local_steps_overlap": (SYNC_EVERY, OVERLAP)}
    steps = {
        mode: make_step(strategy, int(batch_size), *local.get(mode, (0,)))
        for mode, strategy in strategies.items()
    }
    step_server.serve(interface, steps)


if __name__ == "__main__":
    main(sys.argv)

"""A worker of the benchmark of time to accuracy under TensorFlow, with TF_CONFIG set.

`benchmarks.time_to_accuracy` runs it: INDEX HOSTS INTERFACE DATA THREADS.
"""

import functools
import sys

from benchmarks.time_to_accuracy import worker, workload

# Options of the strategy, and steps to an exchange; 0: gradients in every step.
MODES = {
    "float32": ({"grad_bits": 32}, 0),
    "four_bits": ({"grad_bits": 4}, 0),
    "ternary": ({}, 0),
    "bidirectional": ({"wire": "bidirectional"}, 0),
    # Takes the bits and the wire of another mode, by measurement.
    "auto": ({"grad_bits": "auto"}, 0),
    "paper": ({"rotate": False, "clip_factor": 2.5}, 0),
    "sparse": ({"wire": "sparse", "rotate": False, "clip_factor": 0.0}, 0),
    **{f"float_local_{steps}": ({"grad_bits": 32}, steps) for steps in (8, 32)},
    **{f"local_{steps}": ({}, steps) for steps in (2, 3, 4, 8, 32)},
    **{
        f"local_{steps}_{bits}_bits": ({"bits_per_element": bits}, steps)
        for steps, bits in ((2, 0.15), (2, 0.3), (4, 0.15), (4, 0.3), (8, 0.1), (8, 0.3), (32, 0.3))
    },
}


@functools.cache
def _strategy(mode):
    from terngrad_tf.distribute import Quantization, TernGradStrategy

    options = dict(MODES[mode][0])
    wire = options.pop("wire", "auto")
    if options == {"grad_bits": "auto"}:
        return TernGradStrategy(**options)
    return TernGradStrategy(wire=wire, quantization=Quantization(**options))


class Training:
    """See `time_to_accuracy_worker.serve`."""

    def __init__(self, mode, weights, name, rate, num_steps):
        import keras
        import tensorflow as tf

        from terngrad_tf import DiLoCo

        alone = mode == workload.ALONE
        strategy = tf.distribute.get_strategy() if alone else _strategy(mode)
        sync_every = 0 if alone else MODES[mode][1]
        with strategy.scope():
            model = network()
            model.set_weights(weights)
            optimizer = _optimizer(name, _schedule(rate, num_steps))
            if sync_every:
                optimizer = DiLoCo(optimizer, sync_every)
            optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def replica(images, labels):
            with tf.GradientTape() as tape:
                # Keras' losses are already divided by the number of replicas.
                loss = loss_of(labels, model(images, training=True))
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)

        @tf.function
        def step(images, labels):
            strategy.run(replica, args=(images, labels))

        logits = tf.function(lambda images: model(images, training=False))
        self.step = lambda images, labels: step(tf.constant(images), tf.constant(labels))
        # The step assigns the counter last, on the host.
        self.finish = optimizer.iterations.numpy
        self.logits = lambda images: logits(tf.constant(images)).numpy()


def _optimizer(name, schedule):
    import keras

    if name == "sgd":
        return keras.optimizers.SGD(schedule, workload.MOMENTUM)
    decay, epsilon = workload.WEIGHT_DECAY, workload.EPSILON
    return keras.optimizers.AdamW(schedule, weight_decay=decay, epsilon=epsilon)


def _schedule(rate, num_steps):
    import keras
    import tensorflow as tf

    rates = tf.constant(
        [workload.learning_rate(rate, step, num_steps) for step in range(num_steps)]
    )

    class Schedule(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return tf.gather(rates, tf.minimum(tf.cast(step, tf.int32), num_steps - 1))

    return Schedule()


def network():
    """Returns the common network."""
    import keras

    layers = keras.layers
    first, second = workload.FILTERS
    return keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(first, workload.KERNEL, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(second, workload.KERNEL, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(workload.HIDDEN, "relu"),
            layers.Dense(workload.CLASSES),
        ]
    )


def main(argv):
    """Runs the worker; `argv` is its command line."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(int(argv[5]))
    for mode in MODES:
        _strategy(mode)
    worker.serve(Training, argv[1:5])


if __name__ == "__main__":
    main(sys.argv)

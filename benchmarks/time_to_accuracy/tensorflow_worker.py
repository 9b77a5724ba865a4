"""A worker of the benchmark of time to accuracy under TensorFlow, with TF_CONFIG set.

`benchmarks.time_to_accuracy` runs it: INDEX HOSTS INTERFACE DATA THREADS.
"""

import functools
import sys

from benchmarks.time_to_accuracy import worker, workload

# Options of the strategy, and steps from one exchange to the next, 0: gradients in every step.
_TERNARY = {"rotate": False, "clip_factor": 2.5}
MODES = {
    "ternary": (_TERNARY, 0),
    "sparse": ({"wire": "sparse", "rotate": False, "clip_factor": 0.0}, 0),
    "local_8": (_TERNARY, 8),
    "local_32": (_TERNARY, 32),
    **{
        f"local_{steps}_{bits}_bits": ({"bits_per_element": bits}, steps)
        for steps, bits in ((4, 0.2), (8, 0.4), (8, 0.1), (32, 0.3))
    },
    "float_local_32": ({"grad_bits": 32}, 32),
}


@functools.cache
def _strategy(mode):
    from terngrad_tf.distribute import Quantization, TernGradStrategy

    options = dict(MODES[mode][0])
    wire = options.pop("wire", "auto")
    return TernGradStrategy(wire=wire, quantization=Quantization(**options))


class Training:
    """See `time_to_accuracy_worker.serve`."""

    def __init__(self, mode, weights, rate, num_steps):
        import keras
        import tensorflow as tf

        from terngrad_tf import DiLoCo

        strategy, sync_every = _strategy(mode), MODES[mode][1]
        with strategy.scope():
            model = _network()
            model.set_weights(weights)
            optimizer = keras.optimizers.SGD(_schedule(rate, num_steps), workload.MOMENTUM)
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


def _network():
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

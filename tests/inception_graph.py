"""Inception-v3 as a graph of TensorFlow 1, with checkpoints like those of 2016."""

import contextlib
import os

import tensorflow as tf

v1 = tf.compat.v1


def save(folder, images, num_classes, with_optimizer=False, step=157585):
    """Writes a checkpoint with random weights in TensorFlow's first format.

    Args:
        folder: path, created if missing.
        images: float32 array [batch, height, width, channels].
        num_classes: number of classes.
        with_optimizer: whether to save the state of RMSProp. Default False.
        step: number of the checkpoint.

    Returns:
        (path, {name: array} of the variables except kernels and their averages, logits of the
        images, logits with the moving averages).
    """
    os.makedirs(folder, exist_ok=True)
    # Optimizing the graph takes longer than its few runs.
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        v1.set_random_seed(1)
        logits, variables = _network(tf.constant(images), num_classes)
        trained = [v for v in variables if "moving_" not in v.name]
        counter = v1.get_variable("global_step", initializer=0.0, trainable=False)
        # `tf.train.ExponentialMovingAverage` is slow with this many variables.
        averages = [
            v1.get_variable(
                f"{v.op.name}/ExponentialMovingAverage", v.shape, initializer=v1.zeros_initializer()
            )
            for v in variables
        ]
        pairs = list(zip(variables, averages, strict=True))
        if with_optimizer:
            optimizer = v1.train.RMSPropOptimizer(0.1, 0.9, 0.9, 1.0)
            optimizer.apply_gradients([(tf.zeros(v.shape), v) for v in trained], counter)
        every = v1.global_variables()
        session.run(v1.global_variables_initializer())
        session.run([counter.assign(step), *(average.assign(0.9 * v) for v, average in pairs)])
        saver = v1.train.Saver(every, write_version=v1.train.SaverDef.V1)
        slots = [v for v in every if "RMSProp" in v.name and v.shape.rank == 1]
        session.run([v.assign(tf.random.uniform(v.shape)) for v in slots])
        with _quietly():
            path = saver.save(session, os.path.join(folder, "model.ckpt"), step)
        os.remove(f"{path}.meta")
        values = session.run({v.op.name: v for v in every if v.shape.rank < 4})
        raw = session.run(logits)
        session.run([v.assign(average) for v, average in pairs])
        return path, values, raw, session.run(logits)


@contextlib.contextmanager
def _quietly():
    """Hides the advice to use the second format."""
    level = v1.logging.get_verbosity()
    v1.logging.set_verbosity(v1.logging.ERROR)
    yield
    v1.logging.set_verbosity(level)


def _network(x, num_classes):
    """Returns (logits, variables)."""
    variables = []

    def variable(name, initializer, shape):
        variables.append(v1.get_variable(name, shape, initializer=initializer))
        return variables[-1]

    def conv(x, filters, size, strides=1, padding="SAME", scope=None):
        height, width = (size, size) if isinstance(size, int) else size
        channels = x.shape[-1]
        with v1.variable_scope(scope, "Conv"):
            scale = (2 / (height * width * channels)) ** 0.5
            kernel = variable(
                "weights",
                v1.random_normal_initializer(stddev=scale),
                [height, width, channels, filters],
            )
            x = tf.nn.conv2d(x, kernel, strides, padding)
            with v1.variable_scope("BatchNorm"):
                beta = variable("beta", v1.random_normal_initializer(stddev=0.1), [filters])
                mean = variable("moving_mean", v1.random_normal_initializer(stddev=0.1), [filters])
                variance = variable(
                    "moving_variance", v1.random_uniform_initializer(0.5, 1.5), [filters]
                )
        return tf.nn.relu((x - mean) * tf.math.rsqrt(variance + 0.001) + beta)

    def dense(x, scope=None):
        with v1.variable_scope(scope, "FC"):
            kernel = variable(
                "weights", v1.random_normal_initializer(stddev=0.1), [x.shape[-1], num_classes]
            )
            bias = variable("biases", v1.random_normal_initializer(), [num_classes])
        return x @ kernel + bias

    def chain(x, *convs):
        for filters, size in convs:
            x = conv(x, filters, size)
        return x

    def max_pool(x):
        return tf.nn.max_pool2d(x, 3, 2, "VALID")

    def average_pool(x):
        return tf.nn.avg_pool2d(x, 3, 1, "SAME")

    def module(name, x, **branches):
        outputs = []
        with v1.variable_scope(name):
            for branch, make in branches.items():
                with v1.variable_scope(branch):
                    outputs.append(make(x))
        return tf.concat(outputs, 3)

    def fork(x):
        return tf.concat([conv(x, 384, (1, 3)), conv(x, 384, (3, 1))], 3)

    x = conv(x, 32, 3, 2, "VALID", "conv0")
    x = conv(x, 32, 3, 1, "VALID", "conv1")
    x = max_pool(conv(x, 64, 3, scope="conv2"))
    x = conv(x, 80, 1, 1, "VALID", "conv3")
    x = max_pool(conv(x, 192, 3, 1, "VALID", "conv4"))
    for name, width in (("256a", 32), ("288a", 64), ("288b", 64)):
        x = module(
            f"mixed_35x35x{name}",
            x,
            branch1x1=lambda x: conv(x, 64, 1),
            branch5x5=lambda x: chain(x, (48, 1), (64, 5)),
            branch3x3dbl=lambda x: chain(x, (64, 1), (96, 3), (96, 3)),
            branch_pool=lambda x, width=width: conv(average_pool(x), width, 1),
        )
    x = module(
        "mixed_17x17x768a",
        x,
        branch3x3=lambda x: conv(x, 384, 3, 2, "VALID"),
        branch3x3dbl=lambda x: conv(chain(x, (64, 1), (96, 3)), 96, 3, 2, "VALID"),
        branch_pool=max_pool,
    )
    row, column = (1, 7), (7, 1)
    for name, w in (("b", 128), ("c", 160), ("d", 160), ("e", 192)):
        x = module(
            f"mixed_17x17x768{name}",
            x,
            branch1x1=lambda x: conv(x, 192, 1),
            branch7x7=lambda x, w=w: chain(x, (w, 1), (w, row), (192, column)),
            branch7x7dbl=lambda x, w=w: chain(
                x, (w, 1), (w, column), (w, row), (w, column), (192, row)
            ),
            branch_pool=lambda x: conv(average_pool(x), 192, 1),
        )
    with v1.variable_scope("aux_logits"):
        aux = conv(tf.nn.avg_pool2d(x, 5, 3, "VALID"), 128, 1, scope="proj")
        aux = conv(aux, 768, aux.shape[1:3], padding="VALID")
        dense(tf.reshape(aux, [-1, 768]))
    x = module(
        "mixed_17x17x1280a",
        x,
        branch3x3=lambda x: conv(conv(x, 192, 1), 320, 3, 2, "VALID"),
        branch7x7x3=lambda x: conv(
            chain(x, (192, 1), (192, row), (192, column)), 192, 3, 2, "VALID"
        ),
        branch_pool=max_pool,
    )
    for name in "ab":
        x = module(
            f"mixed_8x8x2048{name}",
            x,
            branch1x1=lambda x: conv(x, 320, 1),
            branch3x3=lambda x: fork(conv(x, 384, 1)),
            branch3x3dbl=lambda x: fork(chain(x, (448, 1), (384, 3))),
            branch_pool=lambda x: conv(average_pool(x), 192, 1),
        )
    with v1.variable_scope("logits"):
        return dense(tf.reduce_mean(x, [1, 2]), "logits"), variables

"""Asynchronous training by a single worker, compared with plain Keras.

    python tests/parameter_server/async_worker.py JOB TASK WORKER_HOSTS PS_HOSTS FILE

The worker writes the arrays of both to FILE (.npz).
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import Quantization, cluster_from_hosts
from terngrad_tf.distribute.consistency.handshake import code_metadata
from terngrad_tf.parameter_server import process, worker_step
from terngrad_tf.parameter_server.cluster import ParameterServerCluster
from terngrad_tf.parameter_server.variables import ServedModel
from terngrad_tf.training import ModelConfig, OptimizerConfig
from terngrad_tf.training.optimization import optimizers, schedules
from terngrad_tf.training.optimization.statistics_average import StatisticsAverage

# The third step sends its gradients as floats, the others as streams.
NUM_STEPS, EXACT_STEP = 5, 2
SEED, CLIP_FACTOR, MIN_SIZE = 3, 2.5, 30


def build():
    keras.utils.set_random_seed(1)
    layers = [
        keras.Input([4, 4, 1]),
        keras.layers.Conv2D(6, 3, kernel_regularizer=keras.regularizers.L2(0.1), use_bias=False),
        keras.layers.BatchNormalization(momentum=0.7),
        keras.layers.ReLU(),
        keras.layers.Flatten(),
        keras.layers.Dense(10, name="logits"),
    ]
    model = keras.Sequential(layers)
    config = OptimizerConfig(initial_learning_rate=0.1, num_epochs_per_decay=2)
    rate = schedules.build_schedule(config, max_steps=10, steps_per_epoch=1)
    optimizer = optimizers.build_optimizer("momentum", rate)
    optimizer.build(model.trainable_variables)
    return model, optimizer, StatisticsAverage(model)


def batches():
    generator = np.random.default_rng(0)
    images = generator.normal(size=[NUM_STEPS * 8, 4, 4, 1]).astype("float32")
    labels = generator.integers(0, 10, NUM_STEPS * 8).astype("int32")
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(8, drop_remainder=True)


def plain(model, optimizer, average):
    """Runs the expected steps one after another in one process."""

    @tf.function
    def step(images, labels, number):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            loss = tf.reduce_mean(losses) + tf.add_n(model.losses)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        if number != EXACT_STEP:
            for i, variable in enumerate(variables):
                if variable.shape.num_elements() < MIN_SIZE or "logits" in variable.path:
                    continue
                scales = ternary.local_scales([gradients[i]], CLIP_FACTOR)
                words = ternary.encode(
                    [gradients[i]],
                    scales,
                    seed=SEED,
                    step=number,
                    replica=0,
                    num_replicas=1,
                    tensors=[i],
                )
                shape, dtype = gradients[i].shape, gradients[i].dtype
                (gradients[i],) = ternary.decode(
                    words[tf.newaxis], scales, [shape], [dtype], total_bias=1
                )
        optimizer.apply(gradients, variables)
        return loss

    losses = []
    for number, (images, labels) in enumerate(batches()):
        losses.append(float(step(images, labels, number)))
        # Uses the optimizer's momentum before the step.
        average.update(min(0.9999, (1 + number) / (10 + number)) if number else 0.0)
    return losses


def arrays(prefix, model, optimizer, average):
    return {
        f"{prefix}/{variable.path}": variable.numpy()
        for variable in [*model.weights, *optimizer.variables, *average.variables]
    }


def main(job, task, worker_hosts, ps_hosts, file):
    """Runs one process of the cluster."""
    resolver = cluster_from_hosts(
        worker_hosts=worker_hosts, ps_hosts=ps_hosts, job_name=job, task_id=int(task)
    )
    metadata = {"code": code_metadata(), "run": {}, "own": {}}
    if job == "ps":
        return process.serve(resolver, metadata, start_timeout=120)
    cluster = ParameterServerCluster(resolver, metadata, batches(), start_timeout=120)
    cluster.compare()
    model, optimizer, average = build()
    quantization = Quantization(
        rotate=False,
        clip_factor=CLIP_FACTOR,
        min_size=MIN_SIZE,
        quantize_logits=False,
        seed=SEED,
    )
    served = ServedModel(
        *(model, optimizer, quantization, cluster.server_devices, cluster.num_workers, "sparse"),
        average.variables,
    )
    served.upload()
    config = ModelConfig(net="lenet", label_smoothing=0.0)
    functions = [
        worker_step.make_step(config, model, served, exact=exact) for exact in (False, True)
    ]
    found = []
    for number in range(NUM_STEPS):
        function = functions[number == EXACT_STEP]
        value = cluster.coordinator.schedule(function, args=(cluster.batches,))
        found.append({name: value.item() for name, value in value.fetch().items()})
    served.download()
    result = arrays("asynchronous", model, optimizer, average)
    result |= {f"found/{name}": [step[name] for step in found] for name in found[0]}
    twin = build()
    result["loss"] = plain(*twin)
    kept = [*model.weights, *optimizer.variables, *average.variables]
    names = [variable.path for variable in kept]
    values = list(arrays("plain", *twin).values())
    result |= {f"plain/{name}": value for name, value in zip(names, values, strict=True)}
    np.savez(file, **result)
    cluster.end()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One process of a cluster that exchanges rotated gradients.

Run by `rotated_test.py` with TF_CONFIG set: `python rotated_worker.py OUTPUT.npz JSON`.
"""

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import DiLoCo, Quantization, TernGradStrategy
from tests.distribute import processes, strategy_options
from tests.distribute.private.keras import second_moments_cases
from tests.distribute.samples import build, data, gradients_of, reduce_once


def sums(config):
    """The reduced tensors for each set of options, and bytes as counted and as measured."""
    results = {}
    for index, options in enumerate(config["options"]):
        strategy = TernGradStrategy(
            1, telemetry_freq=1, **strategy_options.arguments(seed=5, **options)
        )
        gradients = [gradients_of(replica) for replica in range(2)]
        for i, value in enumerate(reduce_once(strategy, gradients)):
            results[f"{index}/{i}"] = value
        last = strategy.telemetry.last
        results[f"{index}/bytes"] = [strategy.traffic.received_bytes, last.received_bytes]
        results[f"{index}/error"] = last.relative_error
    sick = [gradients_of(replica) for replica in range(2)]
    sick[1][3][0, 0] = np.inf
    results["sick"] = reduce_once(TernGradStrategy(1), sick)[3]
    return results


def train(config):
    """Weights after some steps of `fit`, with local steps and without."""
    del config
    results = {}
    for name, optimizer in (
        ("adam", lambda: keras.optimizers.Adam(0.01)),
        ("local", lambda: DiLoCo("sgd", 2)),
    ):
        model = build(
            TernGradStrategy(1, quantization=Quantization(seed=5)), dropout=0.0, optimizer=optimizer
        )
        dataset = tf.data.Dataset.from_tensor_slices(data(64)).batch(16).repeat()
        model.fit(dataset, epochs=2, steps_per_epoch=4, verbose=0)
        results |= {f"{name}/{i}": weight for i, weight in enumerate(model.get_weights())}
    return results


def moments(config):
    """Weights and noise averages after steps of optimizers that correct for noise."""
    results = {}
    for index, (name, options) in enumerate(config["optimizers"]):
        weights, optimizer = second_moments_cases.train(
            lambda name=name, options=options: getattr(keras.optimizers, name)(0.01, **options),
            num_local=1,
        )
        averages = [average.numpy() for average in optimizer.rounding_noise.averages]
        results |= {f"{index}/{i}": value for i, value in enumerate(weights + averages)}
    return results


def resume(config):
    """Weights after steps; only the chief has the state of the run that stopped."""
    del config
    variables, optimizer, take = second_moments_cases.make(
        lambda: keras.optimizers.Adam(0.01), num_local=1
    )
    strategy = optimizer._distribution_strategy
    if strategy.is_chief:
        for average in optimizer.rounding_noise.averages:
            average.assign(1e-5 * tf.ones(average.shape))
    for batch in second_moments_cases.batches():
        take(batch)
    return {str(i): variable.numpy() for i, variable in enumerate(variables)}


if __name__ == "__main__":
    processes.main({"sums": sums, "train": train, "moments": moments, "resume": resume})

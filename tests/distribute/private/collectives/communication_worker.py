"""One process of a cluster whose replicas are on a device that its argument names.

Run by `communication_test.py` with TF_CONFIG set: `python communication_worker.py OUTPUT.npz JSON`.
"""

import json
import os
from unittest import mock

import tensorflow as tf

from terngrad_tf.distribute import (
    DiLoCo,
    TernGradStrategy,
    virtual_devices,
)
from tests.distribute import processes, strategy_options
from tests.distribute.samples import build, data, gradients_of, reduce_once


def sums(options):
    """The reduced tensors of two replicas for each set of strategy options."""
    results = {}
    for index, more in enumerate(options):
        strategy = TernGradStrategy(
            1, **strategy_options.arguments(seed=5, communication="ring", **more)
        )
        reduced = reduce_once(strategy, [gradients_of(replica) for replica in range(2)])
        results |= {f"sums/{index}/{i}": value for i, value in enumerate(reduced)}
    return results


def train(name, optimizer=None, **options):
    """Weights after a few steps, their device, and the device of the exchange."""
    strategy = TernGradStrategy(
        1, **strategy_options.arguments(seed=5, communication="ring", **options)
    )
    model = build(strategy, dropout=0.0, optimizer=optimizer)
    dataset = tf.data.Dataset.from_tensor_slices(data(64)).batch(16).repeat()
    model.fit(dataset, epochs=2, steps_per_epoch=4, verbose=0)
    total = strategy.reduce("SUM", strategy.run(lambda: tf.constant([1, 2])), axis=None)
    places = [strategy.extended.process_group.device, model.weights[0].value.values[0].device]
    return {
        f"{name}/places": places,
        f"{name}/total": total,
        f"{name}/evaluated": model.evaluate(*data(30), batch_size=10, verbose=0),
        **{f"{name}/{i}": weight for i, weight in enumerate(model.get_weights())},
    }


def main(config):
    """All results of this process."""
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    place = config["places"][index]
    cpu, *_ = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    # A GPU's products then differ from a CPU's only in the last digits.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    devices = mock.patch.object(
        virtual_devices, "local_devices", lambda num_nodes, _: [f"/device:{place}"] * num_nodes
    )
    with devices:
        return {
            **sums(config["options"]),
            **train("float", grad_bits=32),
            **train("overlap", lambda: DiLoCo("sgd", 2, overlap=1), rotate=False, clip_factor=0.0),
        }


if __name__ == "__main__":
    processes.main({"all": main})

"""Checks of clusters of two processes, whatever the devices of their replicas."""

import pathlib

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.distribute.exchange import wires
from tests.distribute import processes, strategy_options
from tests.distribute.samples import build, data, gradients_of, reduce_once

WORKER = pathlib.Path(__file__).with_name("communication_worker.py")
# A scale that is a maximum is the same on all devices.
OPTIONS = [
    {"grad_bits": 32},
    {"grad_bits": 4, "rotate": False, "clip_factor": 0.0},
    *({"wire": wire, "rotate": False, "clip_factor": 0.0} for wire in wires.WIRES),
]


class ClusterCase(tf.test.TestCase):
    """Two processes whose replicas are on selected devices."""

    # The device of each process's replica.
    places: tuple[str, str]

    @classmethod
    def start(cls, folder, timeout=200):
        """Runs all jobs in both processes, with files in an empty folder."""
        config = {"job": "all", "places": cls.places, "options": OPTIONS}
        cls.results = processes.run(WORKER, 2, folder, timeout, **config)

    def check_sums(self):
        """Both processes have the bits of two replicas of one process."""
        gradients = [gradients_of(replica) for replica in range(2)]
        for index, options in enumerate(OPTIONS):
            alone = reduce_once(
                TernGradStrategy(2, num_gpus=0, **strategy_options.arguments(seed=5, **options)),
                gradients,
            )
            for i, want in enumerate(alone):
                for result in self.results:
                    np.testing.assert_array_equal(result[f"sums/{index}/{i}"], want, str(options))

    def check_places(self):
        """Replicas are on the requested devices, and exchange through the host."""
        for result, place in zip(self.results, self.places, strict=True):
            for name in ("float", "overlap"):
                exchanged, held = result[f"{name}/places"]
                self.assertEndsWith(str(exchanged), "device:CPU:0")
                self.assertEndsWith(str(held), f"device:{place}")
                self.assertAllEqual(result[f"{name}/total"], [2, 4])

    def check_equal(self, *tolerance):
        """Both processes have the same weights; a tolerance bounds their differences."""
        first, second = self.results
        for name in first:
            if name.endswith("/places"):
                continue
            if tolerance:
                self.assertAllClose(first[name], second[name], *tolerance, msg=name)
            else:
                np.testing.assert_array_equal(first[name], second[name], name)

    def check_float_training(self, *tolerance):
        """Training with float gradients gives the weights of one process on its CPU."""
        model = build(TernGradStrategy(2, num_gpus=0, grad_bits=32), dropout=0.0)
        model.fit(*data(64), batch_size=16, epochs=2, shuffle=False, verbose=0)
        for index, weight in enumerate(model.get_weights()):
            self.assertAllClose(self.results[0][f"float/{index}"], weight, *tolerance)

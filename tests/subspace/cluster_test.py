"""Tests of training in a subspace over real processes on loopback."""

import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.distribute import processes
from tests.subspace.samples import build_under, data, flat, new_folder, subspace_optimizer

WORKER = pathlib.Path(__file__).with_name("cluster_worker.py")
NUM_HOSTS = 2


class ClusterTest(tf.test.TestCase):
    def check_second_phase(self, num_local, alpha):
        results = processes.run(
            WORKER,
            NUM_HOSTS,
            new_folder(self),
            job="second_phase",
            num_local=num_local,
            alpha=alpha,
        )
        model = build_under(
            tf.distribute.get_strategy(), subspace_optimizer(sigma=0.9, alpha=alpha)
        )
        x, y = data()
        history = model.fit(x, y, batch_size=48, epochs=2, shuffle=False, verbose=0).history
        for result in results:
            for name, value in results[0].items():
                np.testing.assert_array_equal(result[name], value, err_msg=name)
            np.testing.assert_array_equal(result["resumed"], result["weights"])
            np.testing.assert_allclose(result["weights"], flat(model), atol=1e-3)
            np.testing.assert_allclose(result["loss"], history["loss"], atol=1e-4)

    def test_two_hosts_step_as_one_replica_alike_to_the_bit_and_resume(self):
        self.check_second_phase(1, 0.0)

    def test_two_hosts_with_two_workers_each_and_momentum_outside(self):
        self.check_second_phase(2, 0.05)

    def test_the_chief_alone_writes_snapshots(self):
        first, second = processes.run(WORKER, NUM_HOSTS, new_folder(self), job="first_phase")
        self.assertTrue(first["wrote"])
        self.assertFalse(second["wrote"])
        np.testing.assert_array_equal(first["weights"], second["weights"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

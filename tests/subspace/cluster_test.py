"""Tests of training in a subspace over real processes on loopback."""

import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.distribute import processes
from tests.subspace.samples import (
    build_under,
    data,
    directions,
    flat,
    new_folder,
    subspace_optimizer,
)

WORKER = pathlib.Path(__file__).with_name("cluster_worker.py")
NUM_HOSTS = 2


class ClusterTest(tf.test.TestCase):
    def check_second_phase(self, num_local, variants):
        """Hosts alike to the bit; each variant as one replica; the last resumes as if it went on.

        Args:
            num_local: workers a host.
            variants: options of `SubspaceBFGS`.
        """
        results = processes.run(
            WORKER,
            NUM_HOSTS,
            new_folder(self),
            job="second_phase",
            num_local=num_local,
            variants=variants,
        )
        for result in results:
            for name, value in results[0].items():
                np.testing.assert_array_equal(result[name], value, err_msg=name)
        np.testing.assert_array_equal(
            results[0]["resumed"], results[0][f"{len(variants) - 1}_weights"]
        )
        np.testing.assert_array_equal(results[0]["shared"], directions(1001, 3))
        x, y = data()
        for number, options in enumerate(variants):
            expected = build_under(
                tf.distribute.get_strategy(), subspace_optimizer(sigma=0.9, **options)
            )
            history = expected.fit(x, y, batch_size=48, epochs=2, shuffle=False, verbose=0).history
            weights, loss = (results[0][f"{number}_{name}"] for name in ("weights", "loss"))
            np.testing.assert_allclose(weights, flat(expected), atol=1e-3, err_msg=str(options))
            np.testing.assert_allclose(loss, history["loss"], atol=1e-4, err_msg=str(options))

    def test_two_hosts_step_as_one_replica_with_a_copy_of_the_basis_each_or_half_of_it(self):
        self.check_second_phase(1, [{}, {"shard_basis": True}])

    def test_two_hosts_with_two_workers_each_and_momentum_outside(self):
        outside = {"alpha": 0.05, "residual_every": 3}
        self.check_second_phase(2, [{"alpha": 0.05}, {**outside, "shard_basis": True}])

    def test_the_chief_alone_writes_snapshots(self):
        first, second = processes.run(WORKER, NUM_HOSTS, new_folder(self), job="first_phase")
        self.assertTrue(first["wrote"])
        self.assertFalse(second["wrote"])
        np.testing.assert_array_equal(first["weights"], second["weights"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

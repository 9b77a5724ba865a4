"""Tests of training in a subspace with real processes on loopback."""

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
    def check_second_phase(self, results, variants):
        """Checks that processes have equal bits and match one replica; the last variant resumes.

        Args:
            results: results of the processes.
            variants: options of `SubspaceBFGS`.
        """
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

    @pytest.mark.slow
    def test_two_processes_step_as_one_replica_and_only_the_chief_writes_snapshots(self):
        """Each process holds a copy of the basis, or half of it."""
        variants = [{}, {"shard_basis": True}]
        second_phase = {"num_local": 1, "variants": variants}
        first, second = processes.run(
            WORKER,
            NUM_HOSTS,
            new_folder(self),
            jobs={"first_phase": {}, "second_phase": second_phase},
        )
        self.assertTrue(first["first_phase"]["wrote"])
        self.assertFalse(second["first_phase"]["wrote"])
        np.testing.assert_array_equal(
            first["first_phase"]["weights"], second["first_phase"]["weights"]
        )
        self.check_second_phase([first["second_phase"], second["second_phase"]], variants)

    @pytest.mark.long
    def test_two_processes_with_two_workers_each_and_momentum_outside(self):
        outside = {"alpha": 0.05, "residual_every": 3}
        variants = [{"alpha": 0.05}, {**outside, "shard_basis": True}]
        results = processes.run(
            WORKER, NUM_HOSTS, new_folder(self), job="second_phase", num_local=2, variants=variants
        )
        self.check_second_phase(results, variants)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

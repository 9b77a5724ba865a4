"""A process whose cluster has an unexpected size exits with one line."""

import json
import os
import sys
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.distribute import ClusterOptions, TernGradStrategy, cluster_from_hosts
from tests.distribute import strategy_options

ALONE = "with no cluster: is TF_CONFIG set on this host?"
RULE = "must be the number of processes that train"
VARIABLE = "TERNGRAD_TF_NUM_PROCESSES"


class ClusterSizeTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        environment = mock.patch.dict(os.environ)
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop("TF_CONFIG", None)

    def refused(self, **arguments):
        with self.assertRaises(ValueError) as caught:
            TernGradStrategy(**strategy_options.arguments(**arguments))
        return str(caught.exception)

    def test_a_process_that_was_started_without_tf_config_does_not_train_alone(self):
        self.assertEqual(
            self.refused(num_processes=2), f"`num_processes` {RULE}. Received: 2, {ALONE}"
        )
        os.environ[VARIABLE] = "3"
        variable = f"the environment variable {VARIABLE}"
        self.assertEqual(self.refused(), f"{variable} {RULE}. Received: 3, {ALONE}")
        # The argument takes precedence over the environment.
        self.assertEqual(
            TernGradStrategy(cluster_options=ClusterOptions(num_processes=1)).num_processes, 1
        )

    def test_a_cluster_of_another_size_is_refused_however_it_is_described(self):
        addresses = ["127.0.0.1:1", "127.0.0.1:2"]
        cluster = {"chief": addresses[:1], "worker": addresses[1:], "ps": ["127.0.0.1:3"]}
        task = {"type": "worker", "index": 0}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        self.assertEqual(
            self.refused(num_processes=3),
            f"`num_processes` {RULE}. Received: 3, with a cluster of 2",
        )
        resolver = cluster_from_hosts(worker_hosts=",".join(addresses))
        self.assertEqual(
            self.refused(num_processes=1, cluster_resolver=resolver),
            f"`num_processes` {RULE}. Received: 1, with a cluster of 2",
        )

    def test_invalid_numbers_of_processes_are_refused(self):
        for value in (0, -2, 1.0, True, "2"):
            self.assertStartsWith(
                self.refused(num_processes=value), "`num_processes` must be a positive integer."
            )
        for text in ("", "0", "two", "-1", "1.0"):
            os.environ[VARIABLE] = text
            self.assertEndsWith(self.refused(), f"must be a positive integer. Received: {text!r}")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

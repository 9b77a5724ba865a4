"""TF_CONFIG describes a cluster; if it is wrong, one line reports why."""

import json
import os
import sys
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy, cluster_from_tf_config

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "[fe80::1]:2"]}


def cluster(config):
    text = config if isinstance(config, str) else json.dumps(config)
    with mock.patch.dict(os.environ, TF_CONFIG=text):
        resolver = cluster_from_tf_config()
        return resolver.cluster_spec().as_dict(), resolver.task_type, resolver.task_id


class TFConfigTest(tf.test.TestCase):
    def test_configurations_that_tensorflow_accepts_are_accepted(self):
        for index in (1, "1"):
            config = {"cluster": CLUSTER, "task": {"type": "worker", "index": index}}
            self.assertEqual(cluster(config | {"rpc_layer": "grpc"}), (CLUSTER, "worker", 1))
        self.assertEqual(cluster({})[0], {})
        # A single machine on a platform that describes it.
        alone = {"environment": "cloud", "task": {"type": "chief", "index": 0}, "job": {"id": 5}}
        self.assertEqual(cluster(alone)[0], {})
        for local in (["localhost:1", "127.0.0.1:2"], ["[::1]:1", "127.5.5.5:1", "LocalHost:2"]):
            config = {
                "cluster": {"worker": local, "ps": []},
                "task": {"type": "worker", "index": 1},
            }
            self.assertEqual(cluster(config)[0]["worker"], local)
        with mock.patch.dict(os.environ):
            os.environ.pop("TF_CONFIG", None)
            self.assertEqual(cluster_from_tf_config().cluster_spec().as_dict(), {})

    def test_every_wrong_shape_is_one_line_with_rule_and_value(self):
        task = {"type": "worker", "index": 0}
        for config, error in (
            ("", "must be JSON. Received: nothing; unset it"),
            ("{", "must be JSON: Expecting .*Received: '{'"),
            ("[" * 10_000, r"must be JSON: .*32 deep\. Received: '\[+\[\.\.\. 10002 characters"),
            ('{"task": 1, "task": 2}', "`task` is given twice"),
            ('""', 'must hold an object with "cluster" and "task". Received: \'\''),
            ([], r"must hold an object with .* Received: \[\]"),
            ({"cluster": 5}, "must hold an object of jobs as cluster. Received: 5"),
            ({"cluster": {"worker": "a:1"}}, "a list of addresses as cluster.worker.*'a:1'"),
            ({"cluster": {"worker": [5]}}, "a list of host:port as cluster.worker.*: 5"),
            ({"cluster": {"worker": ["a:1,b:1"]}}, "a list of host:port .*'a:1,b:1'"),
            ({"cluster": {"worker": ["a:70000"]}}, "a list of host:port .*'a:70000'"),
            ({"cluster": {"worker": ["fe80::1:22"]}}, r"in brackets, such as \[fe80::1\]:22\. Rec"),
            ({"cluster": {"worker": ["fe80::1"]}}, r"such as \[fe80::1\]:2222\. Rec.*'fe80::1'"),
            ({"cluster": {"worker": ["[a:b]:22"]}}, r"a list of host:port .*'\[a:b\]:22'"),
            ({"cluster": {"worker": ["a:1", "A:1"]}}, "each address once as cluster.*: 'A:1'"),
            ({"cluster": CLUSTER | {"ps": ["b:1"]}}, "each address once as cluster.*: 'b:1'"),
            (
                {"cluster": {"chief": ["localhost:1"], "worker": ["b:1"]}},
                "hold, as cluster, addresses for all machines: 'localhost:1' is each machine's",
            ),
            ({"cluster": {"worker": ["a:1", "127.0.1.1:1"]}}, "'127.0.1.1:1' is each machine's"),
            ({"cluster": {"worker": ["[::1]:1", "a:1"]}}, "is each machine's own address, and 'a"),
            ({"cluster": {"worker": ["a:1", "0.0.0.0:1"]}}, "'0.0.0.0:1' is no machine's address"),
            ({"cluster": {"workers": ["a:1"]}}, "jobs called .*mean 'worker'.* as cluster"),
            ({"cluster": {"x" * 10**5: []}}, r"jobs called .*xxx\[\.\.\. 100002 characters"),
            ({"cluster": {"\x7f": []}}, r"jobs called .*Received: '\\x7f'"),
            ({"cluster": {"chief": ["a:1", "b:1"]}}, "one address as cluster.chief"),
            ({"cluster ": CLUSTER}, "an object with .cluster. and .task.. Received: {'cluster '"),
            ({"Cluster": CLUSTER, "task": task}, "mean 'cluster'.*Received: 'Cluster'"),
            (
                {"environment": "x", "tasks": task},
                r"keys unlike them \(did you mean 'task'\?\). Received: 'tasks'",
            ),
            ({"task": {"type": "worker", "index": 1}}, 'hold a "cluster", or 0 as task.index.*: 1'),
            ({"cluster": CLUSTER, "task": {"type": "chief"}}, "an integer of 0 .*: None"),
            ({"cluster": {"worker": ["a:1\x1b[2J"]}}, r"a list of host:port .*'a:1\\x1b\[2J'"),
            ({"task": 5}, 'an object with "type" and "index" as task. Received: 5'),
            ({"cluster": CLUSTER, "task": {"type": 5}}, "must hold text as task.type. Received: 5"),
            ({"cluster": CLUSTER}, "one of the jobs chief, worker as task.type. Received: None"),
            ({"cluster": CLUSTER, "task": {"type": "ps"}}, "one of the jobs .*: 'ps'"),
            (
                {"cluster": CLUSTER, "task": task | {"index": 2}},
                "hold an integer below 2, the number of workers in cluster, as task.index. Rec.*2",
            ),
            ({"cluster": CLUSTER, "task": task | {"index": 1.0}}, "an integer of 0 or more"),
            ({"cluster": CLUSTER, "task": task | {"index": True}}, "an integer of 0 or more"),
            ({"cluster": CLUSTER, "task": task | {"index": -1}}, "an integer of 0 or more .*: -1"),
            ({"cluster": CLUSTER, "task": task, "rpc_layer": 5}, "text as rpc_layer. Received: 5"),
        ):
            with self.subTest(config=str(config)[:50]):
                rule = f"^the environment variable TF_CONFIG .*{error}"
                with self.assertRaisesRegex(ValueError, rule) as caught:
                    cluster(config)
                self.assertNotIn("\n", str(caught.exception))
                self.assertLess(len(str(caught.exception)), 500)
                # An uncaught error shows one traceback.
                self.assertIsNone(caught.exception.__context__)

    def test_the_strategy_refuses_a_wrong_tf_config(self):
        with mock.patch.dict(os.environ, TF_CONFIG='{"cluster": 5}'):
            with self.assertRaisesRegex(ValueError, "TF_CONFIG must hold an object of jobs"):
                TernGradStrategy()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

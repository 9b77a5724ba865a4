"""Tests of cluster descriptions: flags, rank tables, and TensorFlow's resolvers."""

import json
import os
import pathlib
import sys
from unittest import mock

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.common.addresses import parse_addresses
from terngrad_tf.distribute import (
    TernGradStrategy,
    cluster_from_hosts,
    cluster_from_rank_table,
)

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOSTS = st.lists(
    st.tuples(
        st.from_regex(r"[a-z0-9]{1,8}(\.[a-z0-9]{1,8}){0,3}", fullmatch=True), st.integers(1, 65535)
    ),
    min_size=1,
    max_size=6,
    unique=True,
)


def table(devices_by_server, **changes):
    """A rank table; `devices_by_server` holds lists of (rank_id, device_ip)."""
    servers = [
        {
            "server_id": f"10.0.0.{number}",
            "device": [
                {"device_id": str(i), "device_ip": ip, "rank_id": str(rank)}
                for i, (rank, ip) in enumerate(devices)
            ],
            "host_nic_ip": "reserve",
        }
        for number, devices in enumerate(devices_by_server)
    ]
    return {
        "version": "1.0",
        "server_count": str(len(servers)),
        "server_list": servers,
        "status": "completed",
    } | changes


class HostsTest(tf.test.TestCase):
    @settings(deadline=None, max_examples=40, derandomize=True)
    @given(HOSTS, st.data())
    def test_hosts_come_back_in_order(self, hosts, draw):
        addresses = [f"{host}:{port}" for host, port in hosts]
        self.assertEqual(parse_addresses("worker_hosts", ",".join(addresses)), addresses)
        self.assertEqual(parse_addresses("worker_hosts", " , ".join(addresses)), addresses)
        task = draw.draw(st.integers(0, len(hosts) - 1))
        resolver = cluster_from_hosts(worker_hosts=",".join(addresses), task_id=task)
        self.assertEqual(resolver.cluster_spec().as_dict(), {"worker": addresses})
        self.assertEqual((resolver.task_type, resolver.task_id), ("worker", task))
        self.assertEqual(resolver.rpc_layer, "grpc")

    def test_parameter_servers_form_a_separate_job(self):
        options = {"worker_hosts": "a:1,b:1", "ps_hosts": "c:1"}
        resolver = cluster_from_hosts(**options, job_name="ps", task_id=0)
        self.assertEqual(
            resolver.cluster_spec().as_dict(), {"worker": ["a:1", "b:1"], "ps": ["c:1"]}
        )
        self.assertEqual(resolver.task_type, "ps")
        self.assertEqual(parse_addresses("ps_hosts", "[fe80::1]:22"), ["[fe80::1]:22"])

    def test_wrong_addresses_are_one_clear_line(self):
        for value in (
            *("a", "a:", ":1", "a:0", "a:65536", "a:x", "a:1,", "a:-1", "a:\u0661", "a b:1"),
            *("-oProxyCommand=x:1", "$(touch x):1", "a;b:1", "`x`:1", "fe80::1:22"),
        ):
            with self.subTest(value=value):
                with self.assertRaisesRegex(ValueError, "`worker_hosts` must hold host:port"):
                    parse_addresses("worker_hosts", value)

    def test_wrong_combinations_are_one_clear_line(self):
        for options, message in (
            ({"worker_hosts": ""}, "`worker_hosts` must name a worker"),
            ({"worker_hosts": "a:1,a:1"}, "`worker_hosts` must name each address once.*a:1"),
            ({"worker_hosts": "a:1", "ps_hosts": "a:1"}, "`ps_hosts` must not name a worker's"),
            ({"worker_hosts": "a:1", "job_name": "chief"}, "`job_name` must be one of"),
            ({"worker_hosts": "a:1", "task_id": 1}, r"`task_id` must lie in \[0, 1\)"),
            ({"worker_hosts": "a:1", "task_id": -1}, "`task_id`.*Received: task_id=-1"),
            ({"worker_hosts": "a:1", "job_name": "ps"}, r"`task_id` must lie in \[0, 0\)"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, message):
                cluster_from_hosts(**options)


class RankTableTest(tf.test.TestCase):
    def write(self, value):
        path = os.path.join(self.get_temp_dir(), "rank_table.json")
        text = value if isinstance(value, str) else json.dumps(value)
        pathlib.Path(path).write_text(text, encoding="utf-8")
        return path

    def addresses(self, value, rank=0, **options):
        resolver = cluster_from_rank_table(self.write(value), rank, **options)
        self.assertEqual((resolver.task_type, resolver.task_id), ("worker", rank))
        return resolver.cluster_spec().as_dict()["worker"]

    def test_eight_devices_of_one_server(self):
        ips = [f"192.{i % 4 + 1}.27.{6 + i // 4}" for i in range(8)]
        value = table([list(enumerate(ips))])
        self.assertEqual(self.addresses(value, 3), [f"{ip}:2222" for ip in ips])

    def test_ranks_order_workers_and_share_an_address_on_consecutive_ports(self):
        value = table([[(2, "10.0.0.1"), (0, "10.0.0.1")], [(1, "10.0.0.2"), (3, "fe80::1")]])
        self.assertEqual(
            self.addresses(value, port=7000),
            ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.1:7001", "[fe80::1]:7000"],
        )

    def test_wrong_tables_are_one_line_with_the_file(self):
        one = [[(0, "10.0.0.1")]]
        extra = table(one)
        extra["server_list"][0]["device"][0]["device_ipp"] = "x"
        missing = table(one)
        del missing["server_list"][0]["device"][0]["rank_id"]
        for value, message in (
            ("{", "must be JSON"),
            ('{"status": 1, "status": 2}', "`status` is given twice"),
            ("[]", "the table must be an object"),
            ({}, "the table must have `server_list`"),
            (table(one, version="2.0"), '`version` must be "1.0"'),
            (table(one, status="initializing"), '`status` must be "completed"'),
            (table(one, server_count="2"), "`server_count` must be the length"),
            (table(one, server_list=[]), "`server_list` must be a list that is not empty"),
            (table(one, servers=[]), "the table must have no key but.*servers"),
            (extra, "a device must have no key but.*device_ipp"),
            (missing, "a device must have `rank_id`"),
            (table([[(0, "10.0.0.300")]]), "`device_ip` must be an IP address.*10.0.0.300"),
            (table([[(0, "10.*.*.*")]]), "`device_ip` must be an IP address"),
            (table([[(0, "10.0.0.1"), (0, "10.0.0.2")]]), "`rank_id` must be unique"),
            (table([[(1, "10.0.0.1")]]), "`rank_id` must count from 0"),
            (table([[("x", "10.0.0.1")]]), "`rank_id` must be an integer"),
        ):
            with (
                self.subTest(message=message),
                self.assertRaisesRegex(ValueError, message) as caught,
            ):
                cluster_from_rank_table(self.write(value), 0)
            self.assertIn("rank_table.json: ", str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        with self.assertRaisesRegex(ValueError, "`rank_id` must be one of the 1 ranks"):
            cluster_from_rank_table(self.write(table(one)), 1)


class StrategyTest(tf.test.TestCase):
    """Errors of a strategy that is made wrongly."""

    def test_a_pipeline_made_before_the_strategy_gives_one_line_that_names_the_move(self):
        tf.data.Dataset.range(2).batch(2)
        resolver = cluster_from_hosts(worker_hosts="localhost:1,localhost:2")
        with self.assertRaisesRegex(
            RuntimeError,
            r"^In a cluster, make .* Move `strategy = .* above every tf\.data pipeline",
        ):
            TernGradStrategy(cluster_resolver=resolver)

    def test_a_mistyped_option_is_one_line_with_its_name(self):
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'grad_bit'"):
            TernGradStrategy(grad_bit=1)


class StockResolversTest(tf.test.TestCase):
    """The documentation's statements about TensorFlow's resolvers."""

    def test_a_process_that_is_no_worker_is_refused(self):
        jobs = {"worker": ["localhost:1"], "evaluator": ["localhost:2"]}
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(jobs), task_type="evaluator", task_id=0
        )
        with self.assertRaisesRegex(ValueError, "chief or a worker .* Received: evaluator 0 of"):
            TernGradStrategy(cluster_resolver=resolver)

    def test_slurm_describes_the_cluster_of_a_step(self):
        environment = {
            "SLURM_STEP_NODELIST": "node[1-2]",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_PROCID": "1",
            # The resolver sets it.
            "CUDA_VISIBLE_DEVICES": "",
        }
        with mock.patch.dict(os.environ, environment):
            resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(port_base=2222)
            cluster = resolver.cluster_spec().as_dict()
        self.assertEqual(cluster, {"worker": ["node1:2222", "node2:2222"]})
        self.assertEqual((resolver.task_type, resolver.task_id), ("worker", 1))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

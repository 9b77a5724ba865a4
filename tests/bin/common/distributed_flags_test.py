"""Flags of the training programs for several hosts: cluster, batch, intervals."""

import json
import os
import sys
from unittest import mock

import pytest
import tensorflow as tf
from absl import flags as absl_flags

from slim_data.cli import legacy_flags
from terngrad_tf import training
from terngrad_tf.bin import cifar10_distributed_train, cifar10_train, mnist_distributed_train
from terngrad_tf.bin.common import distributed_flags, flags, tf1_flags
from tests.bin import samples

HOSTS = ("--worker_hosts", "a:1,b:1,c:1")
JOBS = {"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}}
TABLE = {
    "version": "1.0",
    "status": "completed",
    "server_list": [
        {
            "server_id": "10.0.0.1",
            "device": [
                {"device_id": str(i), "device_ip": f"10.0.0.{i + 1}", "rank_id": str(i)}
                for i in range(2)
            ],
        }
    ],
}
SLURM = {
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
}


def parse(*arguments):
    values = absl_flags.FlagValues()
    cifar10_distributed_train.define_flags(values)
    values(legacy_flags.rewrite(["program", *map(str, arguments)], values))
    return values


def own(values):
    """Returns the `DistributedFlags` of parsed flags."""
    return flags.config_of(values, distributed_flags.DistributedFlags)


def cluster(*arguments, **environment):
    """Returns ({job: addresses}, own job, own index) for a command line."""
    environment = {"TF_CONFIG": "{}", **environment}
    with mock.patch.dict(os.environ, environment):
        found = own(parse(*arguments)).resolver()
        return found.cluster_spec().as_dict(), found.task_type, found.task_id


def names(module):
    values = absl_flags.FlagValues()
    module.define_flags(values)
    return set(values)


class DistributedFlagsTest(tf.test.TestCase):
    def test_flags_differ_from_training_only_in_cluster_and_intervals(self):
        self.assertEqual(
            names(cifar10_distributed_train) ^ names(cifar10_train),
            {
                *("job_name", "task_id", "worker_hosts", "ps_hosts", "rank_table_file", "rank_id"),
                *("slurm", "port", "start_timeout", "token_file", "max_restarts", "async_training"),
                "num_replicas_to_aggregate",
                *("min_workers", "replicate_checkpoints", "join_timeout"),
                *("save_interval_secs", "save_summaries_secs", "save_iter"),
            },
        )
        values = parse()
        self.assertEqual(values.train_dir, "/tmp/dataset_distributed_train")
        self.assertEqual((values.save_interval_secs, values.save_summaries_secs), (600, 180))

    def test_flags_of_elastic_clusters_are_refused_without_one(self):
        folder = self.get_temp_dir()
        config = tf1_flags.train_config(parse("--train_dir", folder))
        for arguments, rule in (
            (
                ("--min_workers", 2, "--async_training"),
                "`min_workers` must not be given with async",
            ),
            (("--replicate_checkpoints", 1), "`replicate_checkpoints` must not be given without"),
            (("--min_workers", 4), "`min_workers` must be at most the number of workers, 3"),
        ):
            values = parse(*HOSTS, *arguments)
            with self.assertRaisesRegex(training.UserError, rule):
                resolver = own(values).resolver()
                own(values).join(resolver, config)
        self.assertIsNone(own(parse()).join(None, config))

    def test_each_way_of_describing_a_cluster(self):
        path = os.path.join(self.get_temp_dir(), "table.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(TABLE, file)
        workers = {"worker": ["a:1", "b:1", "c:1"]}
        self.assertEqual(cluster(*HOSTS, "--task_id", 2), (workers, "worker", 2))
        servers = workers | {"ps": ["d:1"]}
        self.assertEqual(
            cluster(*HOSTS, "--ps_hosts", "d:1", "--job_name", "ps"), (servers, "ps", 0)
        )
        ranks = ["10.0.0.1:7", "10.0.0.2:7"]
        self.assertEqual(
            cluster("--rank_table_file", path, "--rank_id", 1, "--port", 7),
            ({"worker": ranks}, "worker", 1),
        )
        self.assertEqual(
            cluster("--slurm", "--port", 7, **SLURM), ({"worker": ["n1:7", "n2:7"]}, "worker", 1)
        )
        config = json.dumps(JOBS | {"task": {"type": "worker", "index": 0}})
        self.assertEqual(cluster(TF_CONFIG=config), (JOBS["cluster"], "worker", 0))
        # The command line overrides TF_CONFIG.
        self.assertEqual(cluster(*HOSTS, TF_CONFIG=config)[0], workers)

    def test_an_invalid_cluster_is_one_clear_error(self):
        for arguments, error in (
            ((), "`worker_hosts` must be given, or one of rank_table_file, slurm or"),
            ((*HOSTS, "--slurm"), "`slurm` must not be given together with `worker_hosts`"),
            (("--job_name", "ps"), "`job_name` must be worker if `worker_hosts` is not given"),
            ((*HOSTS, "--job_name", "boss"), "`job_name` must be one of"),
            ((*HOSTS, "--task_id", 3), r"`task_id` must lie in \[0, 3\)"),
            (("--slurm",), "SLURM_PROCID not found"),
            (("--rank_table_file", "/no/such"), "`rank_table_file` must .*='/no/such' .No such"),
        ):
            with (
                self.subTest(arguments=arguments),
                self.assertRaisesRegex(training.UserError, error),
            ):
                cluster(*arguments)
        with self.assertRaisesRegex(
            training.UserError, "TF_CONFIG must be JSON: Expecting .*'worker 0'"
        ):
            cluster(TF_CONFIG="worker 0")

    def test_a_token_is_read_from_a_file_and_never_shown(self):
        path = os.path.join(self.get_temp_dir(), "token")

        def token(text, *arguments):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            values = parse("--token_file", path, *arguments)
            return own(values).arguments().get("token")

        secret = "a secret of the team"
        self.assertEqual(token(f"{secret}\n"), secret)
        self.assertIsNone(own(parse()).arguments()["token"])
        for text in (
            "too short",
            " " * 16,
            f"{secret} ",
            f" {secret}",
            f"{secret}\n{secret}",
            "\u00e4" * 20,
            "x" * 5000,
        ):
            rule = f"{path} must hold a token of 16 to 1000 printable ASCII .* \\d+ characters$"
            with self.assertRaisesRegex(training.UserError, rule):
                token(text)
        for seconds in ("1e-300", "0", "nan", "inf", "1e9"):
            with self.assertRaisesRegex(
                training.UserError, "`start_timeout` must be a number of at least 1 and at most"
            ):
                own(parse("--start_timeout", seconds)).arguments()
        with self.assertRaisesRegex(training.UserError, "must not be given with async_training"):
            token(secret, "--async_training")
        with self.assertRaisesRegex(training.UserError, "`token_file` must be a file that can be"):
            own(parse("--token_file", "/no/such")).arguments()

    def test_batch_size_is_per_process_and_steps_wait_for_all(self):
        values = parse(*HOSTS, "--batch_size", 8, "--num_nodes", 2, "--save_interval_secs", 5)
        resolver = own(values).resolver()
        options, workers = distributed_flags.sync_config(values, resolver)
        self.assertEqual((options.data.batch_size, options.cluster.num_nodes), (24, 2))
        self.assertEqual(options.checkpoints.save_interval_secs, 5)
        self.assertEqual(workers.cluster_spec().as_dict(), {"worker": ["a:1", "b:1", "c:1"]})
        for count in (-1, 3):
            values.num_replicas_to_aggregate = count
            distributed_flags.sync_config(values, resolver)
        values.num_replicas_to_aggregate = 2
        with self.assertRaisesRegex(
            training.UserError, "`num_replicas_to_aggregate` must be -1 or the number of workers, 3"
        ):
            distributed_flags.sync_config(values, resolver)

    def test_a_parameter_server_is_not_needed_and_ends_well(self):
        status, out, _ = samples.call(
            mnist_distributed_train.main,
            *("mnist_distributed_train", *HOSTS, "--ps_hosts", "d:1", "--job_name", "ps"),
        )
        self.assertEqual(status, 0)
        self.assertIn("Synchronous training needs no parameter server", out)
        self.assertIn(": PS hosts are: ['d:1']\n", out)
        self.assertIn(": Worker hosts are: ['a:1', 'b:1', 'c:1']\n", out)

    def test_a_process_logs_its_task_and_how_the_cluster_trains(self):
        servers = ("--ps_hosts", "d:1,e:1")
        for arguments, told in (
            (("--task_id", 0), "worker 0 of 3, the chief; synchronous training, float gradients"),
            (
                ("--task_id", 2, "--grad_bits", 1, "--async_training", *servers),
                "worker 2 of 3; asynchronous training, ternary gradients",
            ),
            (
                ("--job_name", "ps", "--task_id", 1, "--async_training", *servers),
                "parameter server 1 of 2; asynchronous training",
            ),
        ):
            values = parse(*HOSTS, *arguments)
            lines = distributed_flags.log_lines(values, own(values).resolver())
            self.assertEqual(lines[-1], f"This process is {told}")
        config = {**JOBS, "task": {"type": "worker", "index": 0}}
        with mock.patch.dict(os.environ, {"TF_CONFIG": json.dumps(config)}):
            values = parse()
            lines = distributed_flags.log_lines(values, own(values).resolver())
        self.assertEqual(lines[:2], ["PS hosts are: ['c:1']", "Worker hosts are: ['a:1', 'b:1']"])
        self.assertStartsWith(lines[2], "This process is worker 1 of 2; synchronous")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Tests of clusters of real processes, one of which dies or starts with different options."""

import json
import pathlib
import re
import shutil
import signal
import sys

import pytest
import tensorflow as tf

from tests.distribute import processes

WORKER = pathlib.Path(__file__).with_name("failing_worker.py")
TIMEOUT = 300
DEFAULTS = {"start_timeout": 100}


class FailuresTest(tf.test.TestCase):
    def run_cluster(self, *configs, num_processes=None, before=None):
        """Starts one process per config; returns addresses, exit statuses and outputs.

        Args:
            *configs: dicts for the worker.
            num_processes: size of the cluster. Default: the number of configs.
            before: {index: command that runs the process}. Default: none.
        """
        addresses = [f"127.0.0.1:{p}" for p in processes.free_ports(num_processes or len(configs))]
        started = [
            processes.start(
                WORKER,
                addresses,
                index,
                [json.dumps(DEFAULTS | config)],
                before=(before or {}).get(index, ()),
            )
            for index, config in enumerate(configs)
        ]
        outputs = processes.outputs(started, TIMEOUT)
        return addresses, [process.returncode for process in started], outputs

    def said(self, output, what):
        """The texts of all lines that begin with `what: `."""
        return re.findall(f"^{what}: (.*)$", output, re.MULTILINE)

    @pytest.mark.slow
    def test_late_and_different_hosts_are_reported_and_a_killed_process_is_named(self):
        late = {1: ["sh", "-c", 'sleep 3; exec "$@"', "late"]}
        same = {"seed": 1, "clip_factor": 2.5, "batch_size": 64}
        nan = [{"nan_at": 3}, {"nan_at": None}, {"nan_at": None}]
        addresses, statuses, outputs = self.run_cluster(
            *(
                {
                    "strategies": [{"seed": 7 if index == 1 else 0}],
                    "metadata": same | ({} if index else {"dataset": "digits"}),
                    "train": [nan[index], {"die_at": 5 if index == 2 else None}],
                }
                for index in range(3)
            ),
            before=late,
        )
        self.assertEqual(statuses, [3, 3, -signal.SIGKILL], outputs)
        for output in outputs:
            strategies, flags = self.said(output, "refused")
            self.assertEqual(
                strategies,
                "the processes' strategies differ: seed is 0 on worker 0, worker 2"
                " but 7 on worker 1",
            )
            self.assertEqual(
                flags,
                "the processes' flags differ: dataset is missing on worker 1, worker 2"
                ' but "digits" on worker 0',
            )
            # A NaN on one process ends the first training at the same step on all.
            first, _, second = output.partition("trained")
            self.assertEqual(re.findall("step (.*)", first), ["0", "1", "2", "3"])
            self.assertEqual(re.findall("step (.*)", second), ["0", "1", "2", "3", "4"])
        for output in outputs[:2]:
            (error,) = self.said(output, "error")
            self.assertRegex(error, rf"^lost worker 2 \({addresses[2]}\b.*\)")

    @pytest.mark.long
    def test_all_report_a_slow_process_and_survivors_name_the_lost_chief(self):
        addresses, statuses, outputs = self.run_cluster(
            *(
                {
                    "train": [
                        {"pause": 0.2 if index == 1 else 0.0, "num_steps": 10},
                        {"pause": 0.2, "num_steps": 10},
                        {"die_at": 5 if index == 0 else None},
                    ]
                }
                for index in range(3)
            )
        )
        self.assertEqual(statuses, [-signal.SIGKILL, 3, 3], outputs)
        for output in outputs:
            # Equally slow processes do not wait for each other.
            self.assertLen(self.said(output, "waits"), 1)
            (line,) = self.said(output.partition("trained")[0], "waits")
            found = re.fullmatch(
                r"the others wait for worker 1: worker 0 (\d+) ms, worker 2 (\d+) ms"
                r" of the (\d+) ms of a step",
                line,
            )
            self.assertTrue(found, line)
            self.assertAllGreater(list(map(int, found.groups())), 100)
        for output in outputs[1:]:
            (error,) = self.said(output, "error")
            self.assertRegex(error, rf"^lost worker 0 \({addresses[0]}\b.*\)")

    @pytest.mark.long
    def test_hosts_with_other_code_end(self):
        changed = pathlib.Path(self.get_temp_dir()) / "changed"
        shutil.copytree(processes.ROOT / "terngrad_tf", changed / "terngrad_tf")
        with open(changed / "terngrad_tf" / "version.py", "a", encoding="utf-8") as file:
            file.write("# Another version.\n")
        _, statuses, outputs = self.run_cluster(
            *[{}] * 3,
            before={1: ["env", f"PYTHONPATH={changed}:{processes.ROOT}"]},
        )
        self.assertEqual(statuses, [3, 3, 3], outputs)
        for output in outputs:
            (error,) = self.said(output, "error")
            self.assertRegex(
                error,
                r"^the processes' strategies differ: "
                r'code is "\w+" on worker 0, worker 2 but "\w+" on worker 1$',
            )

    @pytest.mark.long
    def test_hosts_with_different_models_end(self):
        _, statuses, outputs = self.run_cluster(
            {"train": [{"units": 5}]}, {"train": [{"units": 6}]}
        )
        self.assertEqual(statuses, [3, 3], outputs)
        for output in outputs:
            (error,) = self.said(output, "error")
            self.assertEqual(
                error,
                "the processes' models differ: layers.0.units is 5 on worker 0 but 6 on worker 1",
            )

    @pytest.mark.slow
    def test_a_process_that_is_killed_between_meeting_and_training_is_not_waited_for(self):
        addresses, statuses, outputs = self.run_cluster(
            {"start_timeout": 600, "register_seconds": 5},
            {"start_timeout": 600, "dies_when_met": True},
        )
        self.assertEqual(statuses, [3, -signal.SIGKILL], outputs)
        (error,) = self.said(outputs[0], "error")
        self.assertStartsWith(
            error, f"not all processes started in time; missing: worker 1 ({addresses[1]}: "
        )

    @pytest.mark.slow
    def test_a_process_that_never_starts_is_named(self):
        addresses, statuses, outputs = self.run_cluster({"start_timeout": 2}, num_processes=2)
        self.assertEqual(statuses, [3], outputs)
        self.assertEqual(
            self.said(outputs[0], "error"),
            [
                "not all processes started in time; missing: worker 1"
                f" ({addresses[1]}: connection refused)"
                "; if it was started, TF_CONFIG may not be set there"
            ],
        )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""The files of examples/ for schedulers start programs again where that helps, and only there."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import pytest
import yaml

from terngrad_tf.bin import mnist_distributed_train, program
from tests import forked_scripts

EXAMPLES = forked_scripts.ROOT / "examples"
STATUSES = r"^\| (\d+) \| .* \| (yes|no)\b"
# Ends as it is told, and notes what it was called with.
COMMAND = '#!/bin/bash\necho "$(basename "$0") $*" >> calls\nexit "${STATUS:-0}"\n'


def statuses(again):
    """Exit statuses after which programs are to be started again, or not, as the guide says."""
    guide = (forked_scripts.ROOT / "docs" / "fault_tolerance.md").read_text("utf-8")
    return {int(status) for status, told in re.findall(STATUSES, guide, re.M) if told == again}


class ClusterFilesTest(unittest.TestCase):
    def assert_right_command(self, arguments):
        """Looks whether the program takes flags, of which none needs this machine's files."""
        parsed = []
        self.assertEqual(
            program.run_program("", mnist_distributed_train.define_flags, parsed.append, arguments),
            0,
        )
        self.assertTrue(parsed)

    def test_kubernetes_makes_pods_anew_after_statuses_that_pass(self):
        text = (EXAMPLES / "kubernetes_job.yaml").read_text("utf-8")
        service, job, policy = yaml.safe_load_all(text)
        self.assertEqual(
            [one["kind"] for one in (service, job, policy)], ["Service", "Job", "NetworkPolicy"]
        )
        spec = job["spec"]
        pods = {"job-name": job["metadata"]["name"]}
        self.assertEqual(service["spec"]["selector"], pods)
        self.assertEqual(policy["spec"]["podSelector"]["matchLabels"], pods)
        pod = spec["template"]["spec"]
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        (container,) = pod["containers"]
        *shell, command = container["command"]
        self.assertEqual(shell, ["/bin/sh", "-c"])
        replace, name, *arguments = command.replace("$JOB_COMPLETION_INDEX", "3").split()
        self.assertEqual((replace, name), ("exec", "mnist_distributed_train"))
        self.assert_right_command([name, *arguments])
        (hosts,) = [word.partition("=")[2] for word in arguments if "--worker_hosts" in word]
        (port,) = [one["containerPort"] for one in container["ports"]]
        self.assertEqual(
            hosts.split(","),
            [f"trainer-{i}.{pod['subdomain']}:{port}" for i in range(spec["completions"])],
        )
        self.assertEqual(
            (spec["completionMode"], spec["parallelism"]), ("Indexed", spec["completions"])
        )
        codes = {"FailJob": set(), "Ignore": set()}
        for rule in spec["podFailurePolicy"]["rules"]:
            if "onExitCodes" in rule:
                self.assertEqual(rule["onExitCodes"]["containerName"], container["name"])
                codes[rule["action"]] |= set(rule["onExitCodes"]["values"])
        self.assertEqual(codes["Ignore"], statuses("yes"))
        self.assertEqual(codes["FailJob"], statuses("no") - {0, 130})

    def test_slurm_queues_the_job_again_after_statuses_that_pass(self):
        script = EXAMPLES / "slurm.sbatch"
        again = statuses("yes") | {128 + 9, 128 + 15}
        with tempfile.TemporaryDirectory() as folder:
            for name in ("srun", "scontrol"):
                path = pathlib.Path(folder, name)
                path.write_text(COMMAND if name == "srun" else COMMAND.replace("STATUS", "NONE"))
                path.chmod(0o755)
            path = f"{folder}{os.pathsep}{os.environ['PATH']}"
            for status in sorted(again | statuses("no")):
                calls = pathlib.Path(folder, "calls")
                calls.unlink(missing_ok=True)
                environment = {"PATH": path, "STATUS": str(status), "SLURM_JOB_ID": "17"}
                result = subprocess.run(["bash", script], cwd=folder, env=environment, check=False)
                self.assertEqual(result.returncode, status)
                started, *requeued = calls.read_text().splitlines()
                self.assertEqual(requeued, ["scontrol requeue 17"] * (status in again), status)
        name, *arguments = started.split()[1:]
        self.assertEqual((started.split()[0], name), ("srun", "mnist_distributed_train"))
        self.assert_right_command([name, *arguments])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

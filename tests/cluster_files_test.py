"""The Dockerfile, and the files in examples/ for schedulers that restart programs."""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import pytest
import yaml

from terngrad_tf.bin import mnist_distributed_train
from terngrad_tf.bin.common import program
from tests import forks

EXAMPLES = forks.ROOT / "examples"
STATUSES = r"^\| (\d+) \| .* \| (yes|no)\b"
# Exits with the given status, and logs its calls.
COMMAND = '#!/bin/bash\necho "$(basename "$0") $*" >> calls\nexit "${STATUS:-0}"\n'


def statuses(again):
    """Returns the exit statuses whose row in the guide says `again`, "yes" or "no"."""
    guide = (forks.ROOT / "docs" / "fault_tolerance.md").read_text("utf-8")
    return {int(status) for status, found in re.findall(STATUSES, guide, re.M) if found == again}


class ClusterFilesTest(unittest.TestCase):
    def assert_right_command(self, arguments):
        """Checks that the program accepts the flags; no flag may need files of this machine."""
        parsed = []
        self.assertEqual(
            program.run_program("", mnist_distributed_train.define_flags, parsed.append, arguments),
            0,
        )
        self.assertTrue(parsed)

    def test_kubernetes_restarts_pods_after_passing_statuses(self):
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
        words = command.replace("$JOB_COMPLETION_INDEX", "3").split()
        replace, terngrad, name, *arguments = words
        self.assertEqual((replace, terngrad, name), ("exec", "terngrad", "mnist_distributed_train"))
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

    def test_kubernetes_knows_all_fields(self):
        validate = shutil.which("kubernetes-validate")
        if validate is None:
            self.skipTest("needs kubernetes-validate, of PyPI, whose schemas have 108 MB")
        guide = (forks.ROOT / "docs" / "kubernetes.md").read_text("utf-8")
        (stateful_set,) = re.findall(r"```yaml\n(apiVersion.*?)```", guide, re.DOTALL)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(stateful_set)
            file.flush()
            for version in ("1.29", "1.33"):
                command = [validate, "--strict", "--quiet", "--kubernetes-version", version]
                command += [file.name, EXAMPLES / "kubernetes_job.yaml"]
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def test_the_image_holds_what_the_job_calls(self):
        """Checks the image without building it, which needs a base image."""
        lines = (forks.ROOT / "Dockerfile").read_text("utf-8").splitlines()
        said = [line.split(maxsplit=1) for line in lines if line and line[0] not in "# "]
        ignored = (forks.ROOT / ".dockerignore").read_text("utf-8").splitlines()
        copied = []
        for words in [rest.split() for name, rest in said if name == "COPY"]:
            if not words[0].startswith("--from"):
                copied += words[:-1]
        for name in copied:
            self.assertTrue((forks.ROOT / name).exists(), name)
            self.assertIn(f"!{name}", ignored)
            self.assertFalse(any(fnmatch.fnmatch(name, one) for one in ignored[2:]), name)
        self.assertLessEqual({"pyproject.toml", "README.md", "slim_data", "terngrad_tf"}, {*copied})
        project = (forks.ROOT / "pyproject.toml").read_text("utf-8")
        (extras,) = [rest.partition("=")[2] for name, rest in said if rest.startswith("EXTRAS=")]
        self.assertRegex(project, rf"(?m)^{extras} = \[")
        self.assertRegex(project, r"(?m)^terngrad = ")
        text = (EXAMPLES / "kubernetes_job.yaml").read_text("utf-8")
        pod = list(yaml.safe_load_all(text))[1]["spec"]["template"]["spec"]
        (user,) = [int(rest) for name, rest in said if name == "USER"]
        self.assertEqual(pod["securityContext"], {"runAsNonRoot": True, "fsGroup": user})

    def test_slurm_requeues_the_job_after_passing_statuses(self):
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
        runner, terngrad, name, *arguments = started.split()
        self.assertEqual((runner, terngrad, name), ("srun", "terngrad", "mnist_distributed_train"))
        self.assert_right_command([name, *arguments])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""Scripts that start and stop a cluster over ssh, on hosts in network namespaces."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from tests.launcher import hosts

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
REPOSITORY = SCRIPTS.parent
# No shell may ever run this.
HOSTILE = "a 'b\" $(touch PWNED) `touch PWNED` ; touch PWNED"

# A fake training script: takes the same arguments and logs them.
WORKER = """
source "$(dirname "${BASH_SOURCE[0]}")/start_single.sh"
if [[ "${6:-}" == *fail* ]]; then echo "no such data" >&2; exit 5; fi
experiment="${!#}"
start_job toy "$3" "$4" "$experiment" "$PYTHON" -c '
import os, sys, time
print(sys.argv[1:], flush=True)
print("GRAD_BITS", os.environ.get("GRAD_BITS"), flush=True)
if sys.argv[-2].endswith("die"): sys.exit("no such flag")
while not os.path.exists(os.environ["HOME"] + "/finish"): time.sleep(0.1)
print("finished", flush=True)' "$@"
"""


class DistTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir()) / self.id().rpartition(".")[2]
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        self.checkout = self.folder / HOSTILE.replace("/", "")
        scripts = self.checkout / "scripts"
        scripts.mkdir(parents=True)
        for script in SCRIPTS.glob("*.sh"):
            (scripts / script.name).symlink_to(script)
        for package in ("terngrad_tf", "slim_data"):
            # Copies, because TensorFlow empties folders behind links in its temporary folders.
            without = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / package, self.checkout / package, ignore=without)
        (scripts / "venv.sh").unlink()
        root, path = shlex.quote(str(self.checkout)), shlex.quote(os.environ["PYTHONPATH"])
        (scripts / "venv.sh").write_text(
            f"export PYTHON={sys.executable} ROOT={root} PYTHONPATH={path}\n", "utf-8"
        )
        (scripts / "worker.sh").write_text(WORKER, "utf-8")
        self.cluster = None
        self.config = {
            "WORKER_SCRIPT": "scripts/worker.sh",
            "PS_SCRIPT": "scripts/worker.sh",
            "SSH_CONFIG": "",
            "PS_HOSTS": ["c:2222"],
            "WORKER_HOSTS": ["a:2222", "b:2222"],
            "WORKER_DEVICES": ["0", "-"],
            "DATA_DIR": ["/data/0", HOSTILE],
        }

    def run_script(self, script, **values):
        lines = [
            f"{name}=({shlex.join(value)})"
            if isinstance(value, list)
            else f"{name}={shlex.quote(value)}"
            for name, value in self.config.items()
        ]
        config = self.folder / "config.sh"
        config.write_text('WORKSPACE="$ROOT"\n' + "\n".join(lines) + "\n", "utf-8")
        command = ["bash", str(self.checkout / "scripts" / script)]
        if self.cluster is not None:
            command = self.cluster.network.on_host(0, command)
        own = {"DIST_CONFIG": str(config), "HOME": str(self.home), "PYTHON3": sys.executable}
        return subprocess.run(
            command,
            env={**os.environ, **own, **values},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def assert_nothing_hostile_ran(self):
        self.assertEqual([str(p) for p in self.folder.rglob("PWNED")], [])

    def test_dry_run_prints_every_command_quoted(self):
        result = self.run_script("run_dist.sh", DRY_RUN="1", EXPERIMENT_ID="e1")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        places = ("worker 0 on a: ", "worker 1 on b: ", "ps 0 on c: ")
        for place, line in zip(places, lines, strict=True):
            self.assertStartsWith(line, place)
            words = shlex.split(line.removeprefix(place))
            self.assertEqual(words[:4], ["cd", str(self.checkout), "&&", "env"])
            scripts = ["scripts/worker.sh"] * 2
            self.assertEqual(
                words[-7:],
                ["bash", "scripts/dist_job.sh", *scripts, "c:2222", "a:2222,b:2222", "e1"],
            )
        self.assertIn(f"DATA_DIR={HOSTILE}", shlex.split(lines[1]))
        self.assertIn("DEVICE=-", shlex.split(lines[1]))
        self.assertEqual([path.name for path in self.home.iterdir()], [])
        self.assert_nothing_hostile_ran()

    def test_values_of_a_job_reach_all_hosts(self):
        single = (SCRIPTS / "start_single.sh").read_text("utf-8")
        own = (SCRIPTS / "run_single_worker_cifarnet.sh").read_text("utf-8")
        flags = single.partition("\nstart_worker() {")[2].partition("\n}")[0]
        names = set(re.findall(r"\$\{?([A-Z][A-Z_]+)", flags)) | set(
            re.findall(r"([A-Z_]+):=", own)
        )
        names -= {"HOME", "PYTHON", "PROGRAM"}
        self.assertContainsSubset({"GRAD_BITS", "NET", "ROOT_WORKSPACE"}, names)
        # In the configuration, since a dry run leaves out what this shell exports.
        self.config |= {name: f"{name} of all" for name in names | {"TERNGRAD_VENV"}}
        result = self.run_script("run_dist.sh", DRY_RUN="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in result.stdout.splitlines():
            expected = {f"{name}={name} of all" for name in names | {"TERNGRAD_VENV"}}
            self.assertContainsSubset(expected, shlex.split(line))

    def test_hostile_hosts_and_wrong_counts_are_refused(self):
        for changes, message in (
            ({"WORKER_HOSTS": ["-oProxyCommand=touch PWNED:22", "b:22"]}, "must hold host:port"),
            ({"WORKER_HOSTS": ["$(touch PWNED):22", "b:22"]}, "must hold host:port"),
            ({"PS_HOSTS": ["`touch PWNED`:22"]}, "must hold host:port"),
            ({"WORKER_HOSTS": ["a:22"]}, "`--each DEVICE=...` must be given once for each of"),
            ({"WORKER_DEVICES": ["0"]}, "`--each DEVICE=...` must be given once for each of"),
            ({"DATA_DIR": ["/data"]}, "`--each DATA_DIR=...` must be given once for each of"),
        ):
            with self.subTest(changes=changes):
                kept = dict(self.config)
                self.config |= changes
                result = self.run_script("run_dist.sh")
                self.config = kept
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(message, result.stderr)
                self.assertLen(result.stderr.splitlines(), 1)
        self.assert_nothing_hostile_ran()

    def wait_for(self, name, text):
        """Waits until a log in the home folder contains a text; returns the log."""
        log = self.home / "tmp" / name
        deadline = time.monotonic() + 60
        while text not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        return log.read_text()

    @pytest.mark.slow
    def test_one_run_or_all_runs_over_ssh_are_stopped(self):
        self.cluster = hosts.up(self, "tldst", "10.93.0", self.folder, 3, home=self.home)
        first, second, server = (f"{name}:2222" for name in self.cluster.names)
        self.config |= {"WORKER_HOSTS": [first, second], "PS_HOSTS": [server]}
        self.config["SSH_CONFIG"] = str(self.cluster.ssh_config)
        self.addCleanup(self.run_script, "stop_dist.sh")
        # If one job cannot start, none continues.
        kept = self.config["DATA_DIR"]
        for folder, reason in (
            ("/fail", f"worker 1 on {self.cluster.names[1]} ended with status 5: no such data"),
            ("/die", f"worker 1 on {self.cluster.names[1]} ended with status 1: no such flag"),
        ):
            self.config["DATA_DIR"] = ["/data/0", folder]
            result = self.run_script("run_dist.sh", EXPERIMENT_ID="e0")
            self.assertNotEqual(result.returncode, 0)
            self.assertEqual(result.stderr.splitlines(), [f"terngrad run: {reason}"])
        self.config["DATA_DIR"] = kept
        for experiment in ("e1", "e2"):
            result = self.run_script("run_dist.sh", EXPERIMENT_ID=experiment, GRAD_BITS="1")
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        arguments = [server, f"{first},{second}", "worker", "1", "-", HOSTILE, "e1"]
        log = self.wait_for("toy_info/e1_worker_1.log", "GRAD_BITS")
        self.assertEqual(log.splitlines(), [str(arguments), "GRAD_BITS 1"])
        self.assertIn(f"[1] {arguments}", self.wait_for("dist_info/e1.log", "[1] ["))
        again = self.run_script("run_dist.sh", EXPERIMENT_ID="e1")
        self.assertEqual(again.returncode, 2)
        self.assertIn("still runs; terngrad stop", again.stderr)
        result = self.run_script("stop_dist.sh", EXPERIMENT_ID="e1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("e1.log: stopped process", result.stdout)
        self.assertEndsWith(self.wait_for("dist_info/e1.log", "ended by"), "ended by SIGTERM\n")
        self.assertNotIn("ended by", (self.home / "tmp/dist_info/e2.log").read_text())
        (self.home / "finish").touch()
        for job in ("worker_1", "ps_0"):
            self.assertEndsWith(self.wait_for(f"toy_info/e2_{job}.log", "finished"), "finished\n")
            self.assertNotIn("finished", (self.home / f"tmp/toy_info/e1_{job}.log").read_text())
        deadline = time.monotonic() + 60
        while self.run_script("stop_dist.sh").stdout != "Stopped already.\n":
            self.assertLess(time.monotonic(), deadline)
        self.assert_nothing_hostile_ran()

    def test_a_job_started_by_hand_is_stopped_by_hand(self):
        def call(script, *arguments):
            return subprocess.run(
                ["bash", str(self.checkout / "scripts" / script), *arguments],
                env={**os.environ, "HOME": str(self.home)},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )

        started = call("worker.sh", "", "a:1", "worker", "0", "-", "/data", "my run")
        self.addCleanup(call, "stop_single.sh", "worker", "0")
        self.assertEqual(started.returncode, 0, started.stderr)
        self.assertIn("'my run']", self.wait_for("toy_info/my run_worker_0.log", "]"))
        self.assertEqual(call("stop_single.sh", "worker", "1").stdout, "Stopped already.\n")
        for experiment in (["my run"], []):
            stopped = call("stop_single.sh", "worker", "0", *experiment)
            self.assertEqual(stopped.returncode, 0, stopped.stderr)
            message = "stopped process" if experiment else "Stopped already."
            self.assertIn(message, stopped.stdout)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

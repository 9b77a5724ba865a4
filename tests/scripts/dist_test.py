"""The scripts that start and stop a cluster over ssh, against a real sshd on loopback addresses."""

import getpass
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from terngrad_tf.bin.jobs import background

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
REPOSITORY = SCRIPTS.parent
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
# What no shell may ever run.
HOSTILE = "a 'b\" $(touch PWNED) `touch PWNED` ; touch PWNED"

# Stands in for a training script: takes the same arguments and leaves them in the log.
WORKER = """
source "$(dirname "${BASH_SOURCE[0]}")/start_single.sh"
if [[ "${6:-}" == *fail* ]]; then echo "no such data" >&2; exit 5; fi
experiment="${!#}"
start_job toy "$3" "$4" "$experiment" "$PYTHON" -c '
import os, sys, time
print(sys.argv[1:], flush=True)
if sys.argv[-2].endswith("die"): sys.exit("no such flag: --\x1b[2J")
while not os.path.exists(os.environ["HOME"] + "/finish"): time.sleep(0.1)
print("finished", flush=True)' "$@"
"""


def is_alive(pid):
    """Whether a process runs; one that ended may stay listed until its parent asks for it."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


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
        (scripts / "venv.sh").unlink()
        root, path = shlex.quote(str(self.checkout)), shlex.quote(os.environ["PYTHONPATH"])
        (scripts / "venv.sh").write_text(
            f"export PYTHON={sys.executable} ROOT={root} PYTHONPATH={path}\n", "utf-8"
        )
        (scripts / "worker.sh").write_text(WORKER, "utf-8")
        self.config = {
            "WORKER_SCRIPT": "scripts/worker.sh",
            "PS_SCRIPT": "scripts/worker.sh",
            "SSH_CONFIG": "",
            "PS_HOSTS": ["127.0.0.3:2222"],
            "WORKER_HOSTS": ["127.0.0.1:2222", "127.0.0.2:2222"],
            "WORKER_DEVICES": ["0", "-"],
            "DATA_DIR": ["/data/0", HOSTILE],
        }

    def start_sshd(self):
        if SSHD is None or shutil.which("ssh") is None:
            self.skipTest("needs OpenSSH: apt-get install openssh-server openssh-client")
        if not os.geteuid():
            pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for key in ("host_key", "key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)],
                check=True,
            )
        (self.folder / "sshd_config").write_text(
            f"Port {port}\nHostKey {self.folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder}/key.pub\nStrictModes no\nUsePAM no\n"
            f"PasswordAuthentication no\nPermitRootLogin yes\nSetEnv HOME={self.home}\n",
            "utf-8",
        )
        (self.folder / "ssh_config").write_text(
            f"Host *\n  Port {port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.folder}/key\n  IdentitiesOnly yes\n  LogLevel ERROR\n"
            "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n",
            "utf-8",
        )
        server = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")],
            stderr=(self.folder / "sshd.log").open("w"),
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        self.config["SSH_CONFIG"] = str(self.folder / "ssh_config")
        self.addCleanup(self.run_script, "stop_dist.sh")

    def run_script(self, script, **values):
        lines = [
            f"{name}=({shlex.join(value)})"
            if isinstance(value, list)
            else f"{name}={shlex.quote(value)}"
            for name, value in self.config.items()
        ]
        config = self.folder / "config.sh"
        config.write_text('WORKSPACE="$ROOT"\n' + "\n".join(lines) + "\n", "utf-8")
        return subprocess.run(
            ["bash", str(self.checkout / "scripts" / script)],
            env={**os.environ, "DIST_CONFIG": str(config), **values},
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
        first, *lines = result.stdout.splitlines()
        self.assertEqual(first, "experiment e1")
        hosts = ["127.0.0.3:2222", "127.0.0.1:2222,127.0.0.2:2222"]
        expected = [
            ("127.0.0.1", [*hosts, "worker", "0", "0", "/data/0", "e1"]),
            ("127.0.0.2", [*hosts, "worker", "1", "-", HOSTILE, "e1"]),
            ("127.0.0.3", [*hosts, "ps", "0", "e1"]),
        ]
        self.assertLen(lines, len(expected))
        for line, (host, arguments) in zip(lines, expected, strict=True):
            ssh, remote = shlex.split(line)[:-1], shlex.split(line)[-1]
            self.assertEqual((ssh[0], ssh[-2:]), ("ssh", ["--", host]))
            self.assertEqual(
                shlex.split(remote),
                [
                    *["cd", "--", str(self.checkout), "&&", "exec"],
                    *["bash", "scripts/worker.sh", *arguments],
                ],
            )
        stop = self.run_script("stop_dist.sh", DRY_RUN="1", EXPERIMENT_ID="e1").stdout
        self.assertLen(stop.splitlines(), 3)
        self.assertIn("stop_single.sh worker 1 e1", stop)
        self.assert_nothing_hostile_ran()

    def test_hostile_hosts_and_wrong_counts_are_refused(self):
        for changes, message in (
            ({"WORKER_HOSTS": ["-oProxyCommand=touch PWNED:22", "b:22"]}, "must hold host:port"),
            ({"WORKER_HOSTS": ["$(touch PWNED):22", "b:22"]}, "must hold host:port"),
            ({"PS_HOSTS": ["`touch PWNED`:22"]}, "must hold host:port"),
            ({"WORKER_HOSTS": ["a:22"]}, "`worker_device` must be given once for each of the 1"),
            ({"WORKER_DEVICES": ["0"]}, "`worker_device` must be given once for each of the 2"),
            ({"DATA_DIR": ["/data"]}, "`data_dir` must be given once for each of the 2 workers"),
            ({"WORKER_SCRIPT": ""}, "`worker_script` must be given"),
        ):
            with self.subTest(changes=changes):
                kept = dict(self.config)
                self.config |= changes
                result = self.run_script("run_dist.sh")
                self.config = kept
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(message, result.stderr)
                self.assertLen(result.stderr.splitlines(), 1)
        result = self.run_script("run_dist.sh", EXPERIMENT_ID="../x")
        self.assertIn("`experiment_id` must be", result.stderr)
        self.assert_nothing_hostile_ran()

    def pids(self):
        return [
            int(file.read_text().split()[0])
            for file in sorted((self.home / "tmp" / "terngrad_pids").glob("*.pid"))
        ]

    def wait_for(self, name, text):
        """Waits until the log of a job holds a text; returns all of it."""
        log = self.home / "tmp" / "toy_info" / name
        deadline = time.monotonic() + 60
        while text not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        return log.read_text()

    @pytest.mark.slow
    def test_starts_over_ssh_what_a_second_start_leaves_alone(self):
        self.start_sshd()
        bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.addCleanup(bystander.wait)
        self.addCleanup(bystander.kill)
        result = self.run_script("run_dist.sh", EXPERIMENT_ID="e1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertLen(self.pids(), 3)
        pids = self.pids()
        hosts = ["127.0.0.3:2222", "127.0.0.1:2222,127.0.0.2:2222"]
        self.assertEqual(
            self.wait_for("e1_worker_1.log", "]").strip(),
            str([*hosts, "worker", "1", "-", HOSTILE, "e1"]),
        )
        again = self.run_script("run_dist.sh", EXPERIMENT_ID="e1")
        self.assertEqual(again.returncode, 2)
        self.assertIn("still runs; stop it first", again.stderr)
        self.assertNotIn("stopping", again.stdout)
        self.assertEqual(self.pids(), pids)
        # Of what a second start could start, nothing goes on; the rest of the first does.
        _, worker, _ = pids  # those of the server, worker 0 and worker 1
        os.kill(worker, signal.SIGKILL)
        again = self.run_script("run_dist.sh", EXPERIMENT_ID="e1")
        self.assertEqual(again.returncode, 2)
        self.assertEqual(again.stdout.count("stopping"), 1)
        self.assertIn("stopping worker 0 on 127.0.0.1", again.stdout)
        self.assertEqual(self.pids(), [pids[0], pids[2]])
        (self.home / "finish").touch()
        for job in ("worker_1", "ps_0"):
            self.assertEndsWith(self.wait_for(f"e1_{job}.log", "finished"), "finished\n")
        self.assertIsNone(bystander.poll())

    @pytest.mark.slow
    def test_stop_ends_one_experiment_or_all(self):
        self.start_sshd()
        for experiment in ("e1", "e2"):
            result = self.run_script("run_dist.sh", EXPERIMENT_ID=experiment)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        first, second = self.pids()[:3], self.pids()[3:]
        result = self.run_script("stop_dist.sh", EXPERIMENT_ID="e1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual([is_alive(pid) for pid in first + second], [False] * 3 + [True] * 3)
        result = self.run_script("stop_dist.sh")
        self.assertEqual([is_alive(pid) for pid in second], [False] * 3)
        result = self.run_script("stop_dist.sh")
        self.assertEqual(result.stdout.count("Stopped already."), 3)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_nothing_hostile_ran()

    @pytest.mark.slow
    def test_where_one_job_cannot_start_none_goes_on(self):
        self.start_sshd()
        for folder, reason in (
            ("/fail", "no such data"),
            ("/die", "ended at once with status 1; .*/e1_worker_1.log ends with: no such flag"),
        ):
            self.config["DATA_DIR"] = ["/data/0", folder]
            result = self.run_script("run_dist.sh", EXPERIMENT_ID="e1")
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, reason)
            self.assertIn("failed: worker 1 on 127.0.0.2", result.stderr)
            self.assertNotIn("\x1b", result.stderr)
            self.assertEqual(self.pids(), [])


class BackgroundTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir()) / self.id().rpartition(".")[2]
        self.folder.mkdir()
        self.pid_file = self.folder / "command.pid"
        self.log = self.pid_file.with_suffix(".log")

    def test_a_process_that_got_the_number_later_is_left_alone(self):
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self.pid_file.write_text(f"{other.pid} 1 {boot}\n")
        self.assertIsNone(background.stop(self.pid_file))
        self.assertIsNone(other.poll())
        self.assertFalse(self.pid_file.exists())

    def test_children_and_programs_that_ignore_sigterm_end(self):
        program = (
            "import signal, subprocess, sys, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(600)"
        )
        pid = background.start(self.pid_file, self.log, [sys.executable, "-c", program])
        deadline = time.monotonic() + 60
        while not self.log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        child = int(self.log.read_text())
        self.assertEqual(background.stop(self.pid_file, grace_seconds=0.5), pid)
        os.waitpid(pid, 0)
        deadline = time.monotonic() + 30
        while is_alive(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(is_alive(child))

    def test_pid_files_of_any_content_are_refused_and_nothing_is_ended(self):
        pid_file = self.folder / "pid"
        own = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        for content in (
            b"",
            b"\xff\xfe 1",
            b"1" * 10**6,
            b"-1 2 a",
            b"x y",
            b"1\0 2 a",
            b"\xb2 1 a",
        ):
            pid_file.write_bytes(content)
            with self.assertRaisesRegex(background.BackgroundError, "not a pid file of this prog"):
                background.stop(pid_file)
            self.assertEqual(pid_file.read_bytes(), content)
        for content in (f"{os.getpid()} {own} 0-0", "1 2 a", f"{2**22} None"):
            pid_file.write_text(content)
            self.assertIsNone(background.stop(pid_file))
            self.assertFalse(pid_file.exists())
        os.mkfifo(pid_file)
        (self.folder / "folder").mkdir()
        for path in (pid_file, self.folder / "folder"):
            with self.assertRaisesRegex(background.BackgroundError, "must be a regular file"):
                background.stop(path)
        with self.assertRaisesRegex(background.BackgroundError, "must be a file"):
            background.start(self.folder / "new", pid_file, ["true"])

    def test_links_in_the_place_of_pid_files_are_not_followed(self):
        precious = self.folder / "precious"
        precious.write_text("kept")
        (self.folder / "pid.part").symlink_to(precious)
        (self.folder / "pid").symlink_to(self.folder / "none")
        background.start(self.folder / "pid", self.folder / "log", ["sleep", "60"], 0.1)
        self.assertIsNotNone(background.stop(self.folder / "pid"))
        self.assertEqual(precious.read_text(), "kept")
        self.assertFalse((self.folder / "none").exists())

    def test_a_command_that_does_not_exist_is_one_line(self):
        with self.assertRaisesRegex(background.BackgroundError, "cannot start '/no/such'"):
            background.start(self.pid_file, self.log, ["/no/such"])
        self.assertFalse(self.pid_file.exists())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

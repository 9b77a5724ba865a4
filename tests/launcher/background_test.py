"""`terngrad run --background` and `terngrad stop` end the right processes, and no others."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.launcher import background
from tests.launcher import hosts

SCRIPT = str(pathlib.Path(__file__).with_name("train.py"))
# Starts a run that reports its start when nobody waits for the report.
KILLED = """
import os, signal, sys, time
from terngrad_tf.launcher import background

starter = os.getpid()

def run(started):
    os.kill(starter, signal.SIGKILL)
    while os.getppid() == starter:
        time.sleep(0.01)
    started()
    print("ended")
    return 0, None

background.start(sys.argv[1], run)
"""


def is_alive(pid):
    """Returns True if a process runs and is no zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class BackgroundTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir()) / self.id().rpartition(".")[2]
        self.folder.mkdir()
        self.log = self.folder / "a run.log"
        self.pid_file = background.pid_file(self.log)

    def terngrad(self, *arguments):
        """Returns exit status and output lines of the command `terngrad`."""
        done = subprocess.run(
            [sys.executable, "-m", "terngrad_tf", *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(hosts.ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout.splitlines()

    def test_a_run_continues_until_it_is_stopped(self):
        run = ("run", "--background", self.log, "-np", "2", SCRIPT)
        status, lines = self.terngrad(*run, "wait")
        self.assertEqual(status, 0, lines)
        pid = background.running_process(self.pid_file)
        self.addCleanup(background.stop, self.log)
        end = f"terngrad stop {shlex.quote(str(self.log))} ends it"
        self.assertEqual(lines, [f"terngrad run: process {pid} runs in the background; {end}"])
        self.assertIn("[1] ready", self.log.read_text().splitlines())
        status, lines = self.terngrad(*run, "wait")
        self.assertEqual((status, len(lines)), (2, 1))
        self.assertIn(f"process {pid} still runs; terngrad stop", lines[0])
        status, lines = self.terngrad("stop", self.log, "other.log")
        self.assertEqual(status, 2)
        self.assertCountEqual(
            lines,
            [
                f"{self.log}: stopped process {pid}",
                "terngrad stop: error: other.log: no such log of a run",
            ],
        )
        error = (
            "terngrad stop: error: `--grace` must be seconds of 0 or more. Received: --grace=nan"
        )
        self.assertEqual(self.terngrad("stop", "--grace", "nan", self.log), (2, [error]))
        self.assertFalse(is_alive(pid) or self.pid_file.exists())
        self.assertEqual(self.log.read_text().splitlines()[-1], "terngrad run: ended by SIGTERM")
        self.assertEqual(self.terngrad("stop", self.log), (0, [f"{self.log}: Stopped already."]))

    def test_a_run_that_begins_while_the_last_one_ends_goes_on(self):
        ending = subprocess.Popen(["sleep", "60"], start_new_session=True)
        self.addCleanup(ending.wait)
        self.addCleanup(ending.kill)
        self.write_pid_file(ending.pid)

        def end(pid, number):
            ending.kill()
            ending.wait()
            self.write_pid_file(os.getpid())  # the new run

        with mock.patch.object(background, "_signal", end):
            self.assertEqual(background.stop(self.log, grace_seconds=1.0), ending.pid)
        self.assertEqual(background.running_process(self.pid_file), os.getpid())

    def test_a_run_goes_on_if_the_process_that_started_it_is_killed(self):
        command = [sys.executable, "-c", KILLED, str(self.log)]
        done = subprocess.run(command, cwd=hosts.ROOT, check=False, timeout=60)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        deadline = time.monotonic() + 60
        while self.pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(self.pid_file.exists())
        self.assertEqual(self.log.read_text(), "ended\n")

    def write_pid_file(self, pid):
        self.pid_file.write_text(f"{pid} {background._identity(pid)}\n", "ascii")

    @pytest.mark.slow
    def test_failures_at_the_start_are_shown_on_the_terminal(self):
        run = ("run", "--background", self.log)
        for arguments, expected, message in (
            (["-np", "2", SCRIPT, "fail"], 1, "worker 1 on this machine ended with status 1: Val"),
            (["-np", "0", SCRIPT], 2, "error: `-np` must be a positive integer"),
            (["none.py"], 2, "this machine: no file "),
            (["\udcff.py"], 2, "this machine: no file "),  # a name that is no UTF-8
        ):
            status, lines = self.terngrad(*run, *arguments)
            self.assertEqual((status, len(lines)), (expected, 1), lines)
            self.assertStartsWith(lines[0], f"terngrad run: {message}")
            self.assertEqual(self.log.read_text().splitlines()[-1], lines[0])
            self.assertFalse(self.pid_file.exists())
        (self.folder / "file").touch()
        os.mkfifo(self.folder / "pipe")
        for log in ("file/log", "pipe", "."):
            status, lines = self.terngrad("run", "--background", log, SCRIPT)
            self.assertEqual((status, len(lines)), (2, 1), lines)
        self.assertEqual(self.terngrad(*run, SCRIPT, "end")[0], 0)

    @pytest.mark.slow
    def test_a_run_that_ignores_sigterm_is_killed_with_its_processes(self):
        status, lines = self.terngrad("run", "--background", self.log, SCRIPT, "deaf")
        self.assertEqual(status, 0, lines)
        self.assertIsNotNone(background.stop(self.log, grace_seconds=0.5))
        self.assertFalse(self.pid_file.exists())

    def test_a_later_process_with_the_same_pid_is_left_alone(self):
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self.pid_file.write_text(f"{other.pid} 1 {boot}\n")
        self.assertIsNone(background.stop(self.log))
        self.assertIsNone(other.poll())
        self.assertFalse(self.pid_file.exists())

    def test_invalid_pid_files_are_refused_and_end_no_process(self):
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
            self.pid_file.write_bytes(content)
            with self.assertRaisesRegex(background.BackgroundError, "not a pid file of this prog"):
                background.stop(self.log)
            self.assertEqual(self.pid_file.read_bytes(), content)
        for content in (f"{os.getpid()} {own} 0-0", "1 2 a"):
            self.pid_file.write_text(content)
            self.assertIsNone(background.stop(self.log))
            self.assertFalse(self.pid_file.exists())
        os.mkfifo(self.pid_file)
        (self.folder / "folder.pid").mkdir()
        for path in (self.log, self.folder / "folder"):
            with self.assertRaisesRegex(background.BackgroundError, "must be a regular file"):
                background.stop(path)

    @pytest.mark.slow
    def test_links_in_place_of_pid_files_are_not_followed(self):
        precious = self.folder / "precious"
        precious.write_text("kept")
        (self.folder / f"{self.pid_file.name}.part").symlink_to(precious)
        self.pid_file.symlink_to(self.folder / "none")
        status, lines = self.terngrad("run", "--background", self.log, SCRIPT, "wait")
        self.assertEqual(status, 0, lines)
        pid = background.running_process(self.pid_file)
        self.assertEqual(background.stop(self.log), pid)
        self.assertEqual(precious.read_text(), "kept")
        self.assertFalse((self.folder / "none").exists())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

"""A supervisor restarts its program after failures that may pass, and ends on signals."""

import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

# Supervises a Python script with the remaining arguments.
SUPERVISOR = """
import sys
from terngrad_tf.launcher import supervisor
supervisor.GRACE_SECONDS = 1.0
max_restarts, *command = sys.argv[1:]
report = lambda line: print(f"report: {line}", flush=True)
command = [sys.executable, "-c", *command]
sys.exit(supervisor.supervise(command, int(max_restarts), report))
"""
# Ends with the next argument: a status, or the negative number of a signal.
ENDS = """
import os, sys
log, *ends = sys.argv[1:]
with open(log, "a") as file:
    file.write(".")
end = int(ends[os.path.getsize(log) - 1])
sys.exit(end) if end >= 0 else os.kill(os.getpid(), -end)
"""
# Counts interrupts until none came for half a second, then prints the count.
COUNTS = """
import signal, sys, time
count = 0
def interrupted(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, interrupted)
print("ready", flush=True)
while not count:
    time.sleep(0.05)
time.sleep(0.5)
print(f"{count} interrupts", flush=True)
sys.exit(130)
"""
SLEEPS = "import time; print('ready', flush=True); time.sleep(100)"
# Uses `os.write`: the signal may interrupt `print`, which is not reentrant.
TELLS = f"""
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(os.write(1, b"told to end\\n") and None))
{SLEEPS}
"""
# Forks end as the arguments after the first say.
FORKS = """
import os, random, sys
from terngrad_tf.launcher import supervisor
max_restarts, *ends = map(int, sys.argv[1:])
random.seed(1)
print("loaded")
def report(line):
    ends.pop(0)
    print(line, flush=True)
status = supervisor.supervise(None, max_restarts, report)
if status is None:
    print("restart" if supervisor.is_restart() else "start", random.random(), flush=True)
    sys.exit(ends[0]) if ends[0] >= 0 else os.kill(os.getpid(), -ends[0])
sys.exit(status)
"""
# Its fork ends with the next argument's program.
FORKS_ONCE = """
import sys
from terngrad_tf.launcher import supervisor
status = supervisor.supervise(None, 0, print)
exec(sys.argv[1]) if status is None else sys.exit(status)
"""
# What status 3 means.
LOST = "another worker ended or is out of reach"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


class SupervisorTest(tf.test.TestCase):
    def start(self, *arguments, before=(), program=SUPERVISOR):
        process = subprocess.Popen(
            [*before, sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def supervise(self, max_restarts, *ends):
        """Returns exit status, number of processes, and reports."""
        log = pathlib.Path(self.get_temp_dir()) / self.id()
        log.unlink(missing_ok=True)
        process = self.start(max_restarts, ENDS, log, *ends)
        out, _ = process.communicate(timeout=60)
        return process.returncode, log.stat().st_size, out.splitlines()

    def test_killed_processes_and_passing_statuses_are_restarted(self):
        self.assertEqual(
            self.supervise(5, -signal.SIGKILL, 3, 0),
            (
                0,
                3,
                [
                    "report: ended by signal 9 (Killed); restart 1 of 5",
                    f"report: {LOST}; restart 2 of 5",
                ],
            ),
        )

    def test_restarts_are_limited(self):
        status, processes, reports = self.supervise(1, 3, -signal.SIGSEGV, 0)
        self.assertEqual((status, processes), (128 + signal.SIGSEGV, 2))
        self.assertRegex(reports[-1], r"signal 11 .*; no restart is left of 1$")

    def test_expected_ends_do_not_count(self):
        status, processes, reports = self.supervise(1, 76, 3, 76, 76, 0)
        self.assertEqual((status, processes), (0, 5))
        more = "report: saved, and starts again with further workers"
        self.assertEqual(reports, [more, f"report: {LOST}; restart 1 of 1", more, more])

    def test_other_ends_are_final(self):
        for end in (0, 1, 2, 130):
            self.assertEqual(self.supervise(5, end, 0), (end, 1, []))

    def test_signals_end_supervisor_and_program(self):
        for script, number, status in (
            (SLEEPS, signal.SIGTERM, 128 + signal.SIGTERM),
            (STUBBORN, signal.SIGTERM, 128 + signal.SIGKILL),
            (COUNTS, signal.SIGINT, 130),
        ):
            process = self.start(5, script)
            self.assertEqual(process.stdout.readline(), "ready\n")
            time.sleep(0.2)
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, status)
            self.assertEqual(out, "1 interrupts\n" if script == COUNTS else "")

    def test_a_killed_supervisor_ends_the_program_with_sigterm(self):
        process = self.start(5, TELLS)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.kill()
        out, _ = process.communicate(timeout=60)
        self.assertEqual(out, "told to end\n")

    def test_forks_start_from_the_same_state_without_loading_again(self):
        process = self.start(5, -signal.SIGKILL, 3, 4, program=FORKS)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 4)
        drew = random.Random(1).random()
        self.assertEqual(
            out.splitlines(),
            [
                "loaded",
                f"start {drew}",
                "ended by signal 9 (Killed); restart 1 of 5",
                f"restart {drew}",
                f"{LOST}; restart 2 of 5",
                f"restart {drew}",
            ],
        )

    def test_signals_end_forks(self):
        process = self.start(TELLS, program=FORKS_ONCE)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.terminate()
        out, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (0, "told to end\n"))
        process = self.start(TELLS, program=FORKS_ONCE)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.kill()
        out, _ = process.communicate(timeout=60)
        self.assertEqual(out, "told to end\n")

    def test_an_interrupt_from_the_terminal_reaches_the_process_once(self):
        terminal = "import pty, sys; pty.spawn(sys.argv[1:])"
        process = self.start(5, COUNTS, before=[sys.executable, "-c", terminal])
        self.assertEqual(process.stdout.readline().strip(), "ready")
        out, _ = process.communicate("\x03", timeout=60)
        self.assertIn("1 interrupts", out)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

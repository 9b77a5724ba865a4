"""Starts and ends the processes of one machine on request of a coordinator.

`main`, started over ssh on other machines, reads messages from standard input and writes its own to
standard output, one JSON object per line. It ends its processes when standard input ends.

Messages to the agent:
    {"start": {"folder": str, "script": str or None, "command": [str], "environment": {str: str},
               "is_restart": bool,
               "processes": [{"rank": int, "environment": {str: str}, "port": int}]}}
    {"check": the same}      whether it could start
    {"signal": int}          to all processes
    {"shown": [rank, size]}  lines of a size were shown, see `Window`

Messages of the agent:
    {"hello": {"version": str, "time": seconds since the epoch}}
    {"alive": true}          every `HEARTBEAT_SECONDS`
    {"line": [rank, stream, text]}                 stream 1 or 2
    {"exit": [rank, status, last line]}            status as of `subprocess.Popen`
    {"refused": [reason, advice for a machine other than the coordinator's]}   to a start or check
"""

import contextlib
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from terngrad_tf.launcher.output.lines import read_lines
from terngrad_tf.launcher.output.remarks import Remarks
from terngrad_tf.launcher.output.window import Window
from terngrad_tf.launcher.system import end_with_parent, listening_socket
from terngrad_tf.version import __version__

HEARTBEAT_SECONDS = 5.0
_OUTPUT, _ERRORS = 1, 2
# Time to end after SIGTERM if the coordinator is gone.
_ORPHAN_SECONDS = 10.0
# Time for such processes, on a connection that this machine does not know to be lost, to end.
_FREED_SECONDS = 20.0
_POLL_SECONDS = 0.2
# Kept to report the last line.
_TAIL_BYTES = 2000
# Lines after the reason of an error of TensorFlow: operations, and how to continue.
_AFTER_REASON = re.compile(
    r"\t \[\[|The error could be from a previous operation\. Restart "
    r"|\d+ (successful operations|derived errors ignored)\."
)
# Time to read an ended process's output; its children may hold the pipe open.
_DRAIN_SECONDS = 2.0


class Agent:
    """Runs processes and reports their output and exit statuses, from several threads.

    A process waits if too many of its lines are reported, but not shown.
    """

    def __init__(self, report: Callable[[dict[str, Any]], None]) -> None:
        self.report = report
        self._processes: dict[int, subprocess.Popen] = {}
        self._windows: dict[int, Window] = {}
        self._waiters: list[threading.Thread] = []
        self._lock = threading.Lock()

    def handle(self, message: Mapping[str, Any]) -> None:
        """Handles a message; see the module."""
        if job := message.get("start") or message.get("check"):
            try:
                refusal = _refusal(job)
                if refusal is None and "start" in message:
                    self._start(job)
            except OSError as error:
                refusal = [f"cannot start: {error.strerror}", ""]
            if refusal is not None:
                self.report({"refused": refusal})
        if "signal" in message:
            self.signal(message["signal"])
        if "shown" in message:
            rank, size = message["shown"]
            # After a restart, also one in another thread, a rank may be another machine's.
            if (window := self._windows.get(rank)) is not None:
                window.leave(size)

    def signal(self, number: int) -> None:
        """Sends a signal to all running processes and their children."""
        for window in list(self._windows.values()):
            # They may have to write before they end.
            window.widen()
        for process in list(self._processes.values()):
            with self._lock, contextlib.suppress(ProcessLookupError):
                # Not reaped yet: no other process can have the id.
                if process.returncode is None:
                    os.killpg(process.pid, number)

    def end(self, seconds: float = _ORPHAN_SECONDS) -> None:
        """Ends all processes: SIGTERM, then SIGKILL after some seconds."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        for waiter in self._waiters:
            waiter.join(max(0.0, deadline - time.monotonic()))
        self.signal(signal.SIGKILL)

    def _start(self, job):
        self._processes, self._waiters = {}, []
        self._windows = {process["rank"]: Window() for process in job["processes"]}
        self._remarks = Remarks({**os.environ, **job["environment"]})
        try:
            for process in job["processes"]:
                self._processes[process["rank"]] = self._start_process(job, process)
        except BaseException:
            # The coordinator knows of none.
            self.signal(signal.SIGKILL)
            for started in self._processes.values():
                started.wait()
            raise
        for rank, process in self._processes.items():
            waiter = threading.Thread(target=self._watch, args=(rank, process), daemon=True)
            self._waiters.append(waiter)
            waiter.start()

    def _start_process(self, job, process):
        return subprocess.Popen(
            job["command"],
            cwd=job["folder"],
            env={**os.environ, **job["environment"], **process["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C must reach only the launcher, which forwards it once.
            start_new_session=True,
            preexec_fn=end_with_parent,
        )

    def _watch(self, rank, process):
        tails, window = {}, self._windows[rank]
        readers = [
            threading.Thread(target=self._read, args=(rank, *of_stream, tails, window), daemon=True)
            for of_stream in ((_OUTPUT, process.stdout), (_ERRORS, process.stderr))
        ]
        for reader in readers:
            reader.start()
        # No reaping, so that no signal reaches a new process with the same id.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        window.widen()
        for reader in readers:
            reader.join(_DRAIN_SECONDS)
        with self._lock:
            status = process.wait()
        last = tails.get(_ERRORS) or tails.get(_OUTPUT) or ""
        self.report({"exit": [rank, status, last]})

    def _read(self, rank, number, stream, tails, window):
        for text in read_lines(stream):
            if number == _ERRORS and self._remarks.hide(text):
                continue
            if text.strip() and not _AFTER_REASON.match(text):
                tails[number] = text[-_TAIL_BYTES:]
            window.enter(text)
            self.report({"line": [rank, number, text]})


def _refusal(job):
    """Returns why a job cannot start, and advice for another machine; None if it can."""
    folder, program = job["folder"], job["command"][0]
    if not pathlib.Path(folder).is_dir():
        return [f"no folder {folder}", "make it there, or copy this one by --sync"]
    if shutil.which(program) is None:
        return [f"no program {program}", "install it there, or name another by --python"]
    script = job.get("script")
    if script is not None and not pathlib.Path(folder, script).is_file():
        return [f"no file {pathlib.Path(folder, script)}", "copy it there, or use --sync"]
    deadline = time.monotonic() + (_FREED_SECONDS if job.get("is_restart") else 0.0)
    for process in job["processes"]:
        port = process["port"]
        while (reason := _cannot_listen(port)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if reason:
            return [f"cannot listen on port {port}: {reason}", "--port takes another"]
    return None


def _cannot_listen(port):
    """Returns why this machine cannot listen on a TCP port, or None."""
    try:
        listening_socket(port).close()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        return "another program uses it" if taken else str(error.strerror)
    return None


def serve(agent: Agent, incoming: Iterable[Mapping[str, Any]]) -> None:
    """Runs an agent until the `incoming` messages end; then ends its processes."""
    agent.report({"hello": {"version": __version__, "time": time.time()}})
    gone = threading.Event()

    def beat():
        while not gone.wait(HEARTBEAT_SECONDS):
            agent.report({"alive": True})

    threading.Thread(target=beat, daemon=True).start()
    try:
        # The connection may break.
        with contextlib.suppress(OSError, ValueError):
            for message in incoming:
                agent.handle(message)
    finally:
        gone.set()
        agent.end()


def main() -> int:
    """Runs the agent; returns the exit status."""
    output, lock = os.fdopen(os.dup(1), "wb"), threading.Lock()
    # Prints must not mix with messages.
    os.dup2(2, 1)
    # The coordinator decides when to end. Programs would inherit that a signal is ignored.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)

    def report(message):
        # The coordinator may be gone.
        with lock, contextlib.suppress(OSError):
            output.write(json.dumps(message).encode() + b"\n")
            output.flush()

    serve(Agent(report), map(json.loads, sys.stdin.buffer))
    return 0

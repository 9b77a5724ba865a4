"""Watches a cluster's processes on all machines, and ends or restarts them together."""

import concurrent.futures
import dataclasses
import functools
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from terngrad_tf.common import tokens
from terngrad_tf.common.addresses import first_twice
from terngrad_tf.launcher.nodes import SILENCE_SECONDS, Event, LostError, Node, wait_seconds
from terngrad_tf.launcher.output.window import REPORTED_BYTES, size_of
from terngrad_tf.launcher.supervisor import STATUS_NEWCOMERS, STATUS_PEER
from terngrad_tf.launcher.tasks import Task, end_of, shell_line, tasks_of, variables

# A machine cannot be used.
STATUS_NODE = 2
# Times to end after a failure, and after SIGTERM.
_SETTLE_SECONDS = 4.0
_END_SECONDS = 4.0
_PROBE_SECONDS = 15.0
_POLL_SECONDS = 0.5
# A longer wait is reported. ssh needs up to 15 s to fail.
_PATIENCE_SECONDS = 20.0
# Mistakes in a command appear within this time.
_STARTED_SECONDS = 3.0
_RETRY_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Command to run, and rules for restarts.

    Attributes:
        folder: absolute path of the working folder on every machine.
        script: path of a file that every machine must have, or None.
        environment: variables for all processes.
        each: further variables of each worker.
        num_servers: number of parameter servers, the last processes.
        max_restarts: number of restarts of all processes after failures.
        min_workers: number of processes to continue with after losing machines; 0 for all.
        grace_seconds: time to end after Ctrl-C and SIGTERM.
        start_timeout: seconds to wait for unreachable machines.
    """

    command: Sequence[str]
    folder: str
    script: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    each: Sequence[Mapping[str, str]] = ()
    num_servers: int = 0
    max_restarts: int = 0
    min_workers: int = 0
    grace_seconds: float = 90.0
    start_timeout: float = 600.0


class _SignalError(Exception):
    """A signal, the only argument, arrived while no process was running."""


class Coordinator:
    """Runs a plan on machines.

    Args:
        nodes: machines, the chief's first.
        write: function of (process's name, stream, line, function to call when the line is shown).
            Like `report`, it must not wait: a signal, or a machine's end, would wait, too.
        report: function of a line about the run itself.
        started: called when all processes have run for some seconds.
    """

    def __init__(
        self,
        plan: Plan,
        nodes: Sequence[Node],
        write: Callable[[str, int, str, Callable[[], None]], None],
        report: Callable[[str], None],
        started: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan = plan
        command = list(plan.command)
        self._program = {"folder": plan.folder, "script": plan.script, "command": command}
        self._nodes = list(nodes)
        self._write = write
        self._report = report
        self._started = started
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        # Events that came while no process was running.
        self._early: list[Event] = []
        self._open: list[Node] = []
        # When to report a wait for machines, in `time.monotonic`.
        self._report_from = math.inf

    def tell(self, number: int) -> None:
        """Records a received signal; for signal handlers."""
        self._events.put((None, {"told": number}))

    def describe(self) -> list[str]:
        """Returns a line for each process: where, and which command."""
        # Without this shell's variables and the secret.
        known = {**os.environ, tokens.VARIABLE: self._plan.environment.get(tokens.VARIABLE)}
        shown = {k: v for k, v in self._plan.environment.items() if known.get(k) != v}
        folder, command = self._plan.folder, self._plan.command
        return [
            shell_line(one.task, one.node.name, folder, command, shown | one.environment)
            for one in self._processes(self._nodes)
        ]

    def run(self) -> tuple[int, str | None]:
        """Runs the plan to its end.

        Returns:
            The exit status (the failed process's, or 128 plus its signal) and the last line, None
            after success.
        """
        status, line = 1, None
        try:
            status, line = self._run()
        finally:
            with concurrent.futures.ThreadPoolExecutor(max(1, len(self._open))) as pool:
                list(pool.map(lambda node: self._close(node, status, line), self._open))
        return status, line

    @staticmethod
    def _close(node, status, line) -> None:
        node.send({"over": [status, line]})
        node.close()

    def _run(self):
        restarts, is_restart = 0, False
        while True:
            try:
                self._open_all()
                self._check_addresses()
            except LostError as error:
                return STATUS_NODE, str(error)
            except _SignalError as error:
                return 128 + error.args[0], "interrupted while waiting for machines"
            attempt = self._run_once(is_restart)
            is_restart = True
            for node in attempt.lost:
                self._open.remove(node)
                # Slow if the machine is frozen.
                threading.Thread(target=node.close, daemon=True).start()
            self._forget_events()
            failure = attempt.failure()
            if attempt.told is not None:
                return attempt.result_of_signal()
            if attempt.grows or failure and failure.status == STATUS_NEWCOMERS:
                self._report("starting again with more machines")
                continue
            if failure is None:
                return 0, None
            if restarts == self._plan.max_restarts:
                return failure.status, failure.line
            restarts += 1
            self._report(f"{failure.line}; restart {restarts} of {self._plan.max_restarts}")

    def _open_all(self):
        """Opens all machines; continues without lost ones if enough are left."""
        closed = [node for node in self._nodes if node not in self._open]
        begin = time.monotonic()
        deadline, self._report_from = begin + self._plan.start_timeout, begin + _PATIENCE_SECONDS
        is_first = not self._open
        while errors := self._try_all(closed):
            missing = "; ".join(dict.fromkeys(map(str, errors.values())))
            num_slots = sum(node.slots for node in self._open)
            if self._plan.min_workers and num_slots >= self._plan.min_workers:
                self._report(f"going on without: {missing}")
                break
            # At the start, errors are final; later, machines may come back.
            if is_first or time.monotonic() > deadline:
                raise LostError(missing)
            self._check_told()
            time.sleep(_RETRY_SECONDS)
            closed = list(errors)
        # The order decides who is the chief.
        self._open.sort(key=self._nodes.index)

    def _try_all(self, nodes):
        """Opens machines; returns the errors of those that are out of reach."""
        done = queue.SimpleQueue()

        def open_node(node):
            error = None
            try:
                node.open(self._events)
                self._open.append(node)
            except Exception as raised:
                error = raised
            done.put((node, error))

        for node in nodes:
            # Daemon threads: signals can end the wait.
            threading.Thread(target=open_node, args=(node,), daemon=True).start()
        errors = {}
        while len(errors) < len(nodes):
            self._check_told()
            if time.monotonic() > self._report_from:
                self._report_from = math.inf
                names = ", ".join(node.name for node in nodes if node not in errors)
                self._report(f"waiting for {names}")
            try:
                node, error = done.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if error is not None and not isinstance(error, LostError):
                raise error
            errors[node] = error
        return {node: errors[node] for node in nodes if errors[node] is not None}

    def _check_addresses(self):
        places = [node.address(slot) for node in self._open for slot in range(node.slots)]
        if twice := first_twice(places):
            raise LostError(
                f"two machines have the address {twice} for the others; give each a --name of its"
                " own, under which the others reach it, or give -np 2 to a single machine"
            )

    def _check_told(self):
        """Raises `_SignalError` after a signal, also to another machine, which waits here."""
        self._receive()
        for _, message in self._early:
            if "told" in message:
                raise _SignalError(message["told"])

    def _receive(self):
        while not self._events.empty():
            self._early.append(self._events.get())

    def _forget_events(self):
        """Drops events of earlier processes and connections; keeps signals and remarks."""
        self._receive()
        self._early = [
            (node, message)
            for node, message in self._early
            if message.keys() & {"told", "remark"} or "lost" in message and node in self._open
        ]

    def _processes(self, nodes):
        """Returns the processes on machines, by rank."""
        places = [(node, slot) for node in nodes for slot in range(node.slots)]
        everywhere = [(node, slot) for node in self._nodes for slot in range(node.slots)]
        addresses = [node.address(slot) for node, slot in places]
        tasks = tasks_of(len(places), self._plan.num_servers)
        found = []
        for rank, (node, slot) in enumerate(places):
            own = variables(tasks, addresses, rank)
            # Workers keep their variables if earlier machines are lost.
            position = everywhere.index((node, slot))
            own |= self._plan.each[position] if position < len(self._plan.each) else {}
            port = int(addresses[rank].rpartition(":")[2])
            found.append(_Process(rank, tasks[rank], node, port, own))
        return found

    def _run_once(self, is_restart):
        self._forget_events()
        processes = self._processes(self._open)
        job = self._program | {"environment": dict(self._plan.environment)}
        job["is_restart"] = is_restart
        for node in self._open:
            own = [
                {"rank": one.rank, "port": one.port, "environment": one.environment}
                for one in processes
                if one.node is node
            ]
            node.send({"start": job | {"processes": own}})
        attempt = _Attempt(
            processes, self._events, self._plan.grace_seconds, self._write, self._report
        )
        for event in self._early:
            attempt.handle(*event)
        self._early = []
        absent = [node for node in self._nodes if node not in self._open]
        over = threading.Event()
        if absent:
            threading.Thread(target=self._look_for, args=(absent, over), daemon=True).start()
        try:
            attempt.watch(self._started)
        finally:
            over.set()
        return attempt

    def _look_for(self, absent, over):
        while not over.wait(_PROBE_SECONDS):
            for node in absent:
                if node.reaches(self._program) and not over.is_set():
                    self._events.put((node, {"back": True}))
                    return


@dataclasses.dataclass(frozen=True)
class _Process:
    """A process: its place, its machine and port, and its own variables."""

    rank: int
    task: Task
    node: Node
    port: int
    environment: dict[str, str]


@dataclasses.dataclass(frozen=True)
class _Failure:
    """A failed process or lost machine; `is_effect` if another failure may be the cause."""

    status: int
    line: str
    is_effect: bool = False


class _Attempt:
    """One start of all processes, up to the end of the last one.

    Attributes:
        lost: machines that are out of reach.
        told: the user's signal, or None.
        grows: whether processes must end because a machine came back.
    """

    def __init__(
        self,
        processes: Sequence[_Process],
        events: "queue.SimpleQueue[Event]",
        grace_seconds: float,
        write: Callable[[str, int, str, Callable[[], None]], None],
        report: Callable[[str], None],
    ) -> None:
        self.lost: list[Node] = []
        self.told: int | None = None
        self.grows = False
        self._processes = processes
        self._events = events
        self._grace_seconds = grace_seconds
        self._write = write
        self._report = report
        self._running = {one.rank: one.node for one in processes}
        self._failures: list[_Failure] = []
        # (time, signal to send to all processes).
        self._deadlines: list[tuple[float, int]] = []
        # Machines that received a signal; None is this machine.
        self._told_by: set[Node | None] = set()
        # Seconds for which this process waited for a machine's messages in vain.
        self._silent = dict.fromkeys(self._running.values(), 0.0)
        # Size of shown lines not yet reported to agents, by rank.
        self._shown = dict.fromkeys(self._running, 0)

    def failure(self) -> _Failure | None:
        """Returns the failure that caused the others, judging by statuses."""
        causes = [failure for failure in self._failures if not failure.is_effect]
        return next(iter(causes or self._failures), None)

    def result_of_signal(self) -> tuple[int, str | None]:
        """Returns exit status and last line of a run that the user's signal ended."""
        assert self.told is not None
        if not self._failures:
            return 0, None
        if self.told == signal.SIGINT:
            return 128 + self.told, "interrupted"
        # Programs that save have their own status.
        own = [failure.status for failure in self._failures if failure.status < 128]
        return (own or [128 + self.told])[0], f"ended by {signal.Signals(self.told).name}"

    def watch(self, started: Callable[[], None]) -> None:
        """Handles events until all processes have ended."""
        settled = time.monotonic() + _STARTED_SECONDS
        while self._running:
            if time.monotonic() > settled and not self._failures:
                started()
            soonest = min((time for time, _ in self._deadlines), default=math.inf)
            timeout = min(wait_seconds(soonest), _POLL_SECONDS)
            begin = time.monotonic()
            try:
                node, message = self._events.get(timeout=timeout)
            except queue.Empty:
                node, message = None, {}
            # Less than the clock tells if this process itself was stopped.
            self._find_silent(node, min(time.monotonic() - begin, timeout))
            self.handle(node, message)
            for due in [due for due in self._deadlines if due[0] <= time.monotonic()]:
                self._deadlines.remove(due)
                self._signal(due[1])

    def handle(self, node: Node | None, message: Mapping[str, Any]) -> None:
        """Handles an event."""
        match message:
            case {"line": [rank, stream, text]}:
                self._show(node, rank, stream, text)
            case {"exit": [rank, status, last]}:
                self._note_exit(rank, status, last)
            case {"refused": [reason, advice]}:
                line = f"{node.name}: {reason}" + (f"; {advice}" if advice and node.beats else "")
                self._drop(node, _Failure(STATUS_NODE, line))
            case {"lost": reason}:
                self._lose(node, reason)
            case {"remark": line}:
                self._report(line)
            case {"back": _} if len(self._running) == len(self._processes):
                self._report(f"{node.name} is back; ending all processes to go on with it")
                self.grows = True
                self._end(signal.SIGTERM)
            case {"told": number}:
                self._note_signal(node, number)

    def _show(self, node, rank, stream, text):
        if rank >= len(self._processes) or self._processes[rank].node is not node:
            return  # of an earlier process, whose children write on
        shown = functools.partial(self._note_shown, node, rank, size_of(text))
        self._write(self._processes[rank].task.label, stream, text, shown)

    def _note_shown(self, node, rank, size):
        self._shown[rank] += size
        if self._shown[rank] >= REPORTED_BYTES:
            node.send({"shown": [rank, self._shown[rank]]})
            self._shown[rank] = 0

    def _note_exit(self, rank, status, last):
        node = self._running.pop(rank, None)
        if node is not None and status:
            code, line = end_of(self._processes[rank].task, node.name, status, last)
            self._fail(_Failure(code, line, is_effect=code == STATUS_PEER))

    def _note_signal(self, node, number):
        # A machine's second signal kills; batch systems send one to every machine.
        if node in self._told_by:
            self._signal(signal.SIGKILL)
        elif self.told is None:
            self.told = number
            self._end(number)
        self._told_by.add(node)

    def _find_silent(self, heard, waited):
        """Gives up machines that were silent for too long, for example frozen ones."""
        for node in set(self._running.values()):
            self._silent[node] = 0.0 if node is heard else self._silent[node] + waited
            if node.beats and self._silent[node] > SILENCE_SECONDS:
                self._lose(node, f"{node.name}: no sign of life for {SILENCE_SECONDS:.0f} s")

    def _lose(self, node, reason):
        # Earlier connections may end, too.
        if node in self._silent and node not in self.lost:
            self.lost.append(node)
        self._drop(node, _Failure(STATUS_PEER, f"lost {reason}"))

    def _drop(self, node, failure):
        """Notes that no process runs on a machine."""
        ranks = [rank for rank, owner in self._running.items() if owner is node]
        for rank in ranks:
            del self._running[rank]
        if ranks:
            self._fail(failure)

    def _fail(self, failure):
        self._failures.append(failure)
        if len(self._failures) > 1 or self.told is not None or self.grows:
            return
        # Other processes may report the cause.
        settled = time.monotonic() + _SETTLE_SECONDS
        self._deadlines = [(settled, signal.SIGTERM), (settled + _END_SECONDS, signal.SIGKILL)]

    def _end(self, number):
        self._signal(number)
        self._deadlines = [(time.monotonic() + self._grace_seconds, signal.SIGKILL)]

    def _signal(self, number):
        for node in set(self._running.values()):
            node.send({"signal": int(number)})

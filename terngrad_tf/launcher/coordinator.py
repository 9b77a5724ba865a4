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

from terngrad_tf.common import tokens
from terngrad_tf.common.addresses import first_twice
from terngrad_tf.launcher.nodes import SILENCE_SECONDS, LostError, Node, wait_seconds
from terngrad_tf.launcher.output.window import REPORTED_BYTES, size_of
from terngrad_tf.launcher.supervisor import STATUS_NEWCOMERS
from terngrad_tf.launcher.tasks import end_of, shell_line, tasks_of, variables

# A process ended because another one failed.
STATUS_PEER = 3
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


@dataclasses.dataclass
class _Attempt:
    """One start of all processes.

    Attributes:
        running: machine of each running process, by rank.
        machines: machine of each process, by rank.
        failures: (status, line, whether others may be the cause) of failed processes and lost
            machines.
        deadlines: (time, signal to send to all processes).
        told: the user's signal, or None.
        told_by: machines that received one; None is this machine.
        grows: whether processes must end because a machine came back.
    """

    running: dict[int, Node]
    failures: list[tuple[int, str, bool]] = dataclasses.field(default_factory=list)
    deadlines: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    told: int | None = None
    told_by: set[Node | None] = dataclasses.field(default_factory=set)
    lost: list[Node] = dataclasses.field(default_factory=list)
    grows: bool = False

    def __post_init__(self):
        self.machines = dict(self.running)

    def failure(self):
        """Returns the failure that caused the others, judging by statuses."""
        causes = [failure for failure in self.failures if not failure[2]]
        return next(iter(causes or self.failures), None)


class _ToldError(Exception):
    """A signal arrived while no process was running."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


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
        self._events: queue.SimpleQueue = queue.SimpleQueue()
        self._open: list[Node] = []
        # Seconds for which this process waited for a machine's messages in vain.
        self._silent: dict[Node, float] = {}
        # Size of shown lines that no agent was told.
        self._shown: dict[tuple[Node, int], int] = {}
        self._is_restart = False
        # When to report a wait for machines, in `time.monotonic`.
        self._report_from = math.inf

    def tell(self, number: int) -> None:
        """Records a received signal; for signal handlers."""
        self._events.put((None, {"told": number}))

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
        restarts = 0
        while True:
            try:
                self._open_all()
                self._check_addresses()
            except LostError as error:
                return STATUS_NODE, str(error)
            except _ToldError as error:
                return 128 + error.number, "interrupted while waiting for machines"
            attempt = self._run_once()
            for node in attempt.lost:
                self._open.remove(node)
                # Slow if the machine is frozen.
                threading.Thread(target=node.close, daemon=True).start()
            self._forget_events()
            failure = attempt.failure()
            if attempt.told is not None:
                return self._told_status(attempt)
            if attempt.grows or failure and failure[0] == STATUS_NEWCOMERS:
                self._report("starting again with more machines")
                continue
            if failure is None:
                return 0, None
            if restarts == self._plan.max_restarts:
                return failure[:2]
            restarts += 1
            self._report(f"{failure[1]}; restart {restarts} of {self._plan.max_restarts}")

    @staticmethod
    def _told_status(attempt) -> tuple[int, str | None]:
        name = signal.Signals(attempt.told).name
        if not attempt.failures:
            return 0, None
        if attempt.told == signal.SIGINT:
            return 128 + attempt.told, "interrupted"
        # Programs that save have their own status.
        statuses = [status for status, *_ in attempt.failures if status < 128]
        return (statuses or [128 + attempt.told])[0], f"ended by {name}"

    def _open_all(self):
        """Opens all machines; continues without lost ones if enough are left."""
        closed = [node for node in self._nodes if node not in self._open]
        begin = time.monotonic()
        deadline, self._report_from = begin + self._plan.start_timeout, begin + _PATIENCE_SECONDS
        is_first = not self._open
        while closed:
            errors = self._try_all(closed)
            closed = [node for node in closed if errors[node] is not None]
            missing = "; ".join(dict.fromkeys(str(errors[node]) for node in closed))
            if closed and self._plan.min_workers and self._slots() >= self._plan.min_workers:
                self._report(f"going on without: {missing}")
                break
            # At the start, errors are final; later, machines may come back.
            if closed and (is_first or time.monotonic() > deadline):
                raise LostError(missing)
            if closed:
                self._check_told()
                time.sleep(_RETRY_SECONDS)
        # The order decides who is the chief.
        self._open.sort(key=self._nodes.index)

    def _check_addresses(self):
        places = [node.address(slot) for node in self._open for slot in range(node.slots)]
        if twice := first_twice(places):
            raise LostError(
                f"two machines have the address {twice} for the others; give each a --name of its"
                " own, under which the others reach it, or give -np 2 to a single machine"
            )

    def _try_all(self, nodes):
        """Opens machines; returns each one's error, or None."""
        errors, done = {}, queue.SimpleQueue()

        def open_node(node):
            try:
                node.open(self._events)
                self._open.append(node)
            except Exception as error:
                errors[node] = error
            done.put(node)

        for node in nodes:
            # Daemon threads: signals can end the wait.
            threading.Thread(target=open_node, args=(node,), daemon=True).start()
        waiting = set(nodes)
        while waiting:
            self._check_told()
            if time.monotonic() > self._report_from:
                self._report_from = math.inf
                names = ", ".join(node.name for node in nodes if node in waiting)
                self._report(f"waiting for {names}")
            try:
                waiting.discard(done.get(timeout=_POLL_SECONDS))
            except queue.Empty:
                continue
        for error in errors.values():
            if not isinstance(error, LostError):
                raise error
        return {node: errors.get(node) for node in nodes}

    def _check_told(self):
        events = []
        while not self._events.empty():
            events.append(self._events.get())
        for event in events:
            self._events.put(event)
        # Also of another machine, which waits here for the others.
        if told := [message["told"] for _, message in events if "told" in message]:
            raise _ToldError(told[0])

    def _slots(self):
        return sum(node.slots for node in self._open)

    def describe(self) -> list[str]:
        """Returns a line for each process: where, and which command."""
        # Without this shell's variables and the secret.
        known = {**os.environ, tokens.VARIABLE: self._plan.environment.get(tokens.VARIABLE)}
        shown = {k: v for k, v in self._plan.environment.items() if known.get(k) != v}
        return [
            shell_line(task, node.name, self._plan.folder, self._plan.command, shown | own)
            for task, node, _, own in self._processes(self._nodes)
        ]

    def _processes(self, nodes):
        """Returns (task, machine, port, variables) of each process, by rank."""
        places = [(node, slot) for node in nodes for slot in range(node.slots)]
        everywhere = [(node, slot) for node in self._nodes for slot in range(node.slots)]
        addresses = [node.address(slot) for node, slot in places]
        self._tasks = tasks_of(len(places), self._plan.num_servers)
        found = []
        for rank, (node, slot) in enumerate(places):
            own = variables(self._tasks, addresses, rank)
            # Workers keep their variables if earlier machines are lost.
            position = everywhere.index((node, slot))
            own |= self._plan.each[position] if position < len(self._plan.each) else {}
            port = int(addresses[rank].rpartition(":")[2])
            found.append((self._tasks[rank], node, port, own))
        return found

    def _run_once(self):
        self._forget_events()
        processes = self._processes(self._open)
        attempt = _Attempt({rank: node for rank, (_, node, *_) in enumerate(processes)})
        self._silent = dict.fromkeys(self._open, 0.0)
        job = self._program | {"environment": dict(self._plan.environment)}
        job["is_restart"] = self._is_restart
        for node in self._open:
            own = [
                {"rank": rank, "port": port, "environment": environment}
                for rank, (_, owner, port, environment) in enumerate(processes)
                if owner is node
            ]
            node.send({"start": job | {"processes": own}})
        self._is_restart = True
        absent = [node for node in self._nodes if node not in self._open]
        over = threading.Event()
        if absent:
            threading.Thread(target=self._look_for, args=(absent, over), daemon=True).start()
        try:
            self._watch(attempt, time.monotonic() + _STARTED_SECONDS)
        finally:
            over.set()
        return attempt

    def _forget_events(self):
        """Drops events of earlier processes and connections; keeps signals and remarks."""
        kept = []
        while not self._events.empty():
            node, message = event = self._events.get()
            is_lost = "lost" in message and node in self._open
            kept += [event] if is_lost or message.keys() & {"told", "remark"} else []
        for event in kept:
            self._events.put(event)

    def _watch(self, attempt, settled):
        while attempt.running:
            if time.monotonic() > settled and not attempt.failures:
                self._started()
            soonest = min((time for time, _ in attempt.deadlines), default=float("inf"))
            timeout = min(wait_seconds(soonest), _POLL_SECONDS)
            begin = time.monotonic()
            try:
                node, message = self._events.get(timeout=timeout)
            except queue.Empty:
                node, message = None, {}
            # Less than the clock tells if this process itself was stopped.
            self._find_silent(attempt, node, min(time.monotonic() - begin, timeout))
            self._handle(attempt, node, message)
            for due in [due for due in attempt.deadlines if due[0] <= time.monotonic()]:
                attempt.deadlines.remove(due)
                self._signal(attempt, due[1])

    def _handle(self, attempt, node, message):
        if "line" in message:
            rank, stream, text = message["line"]
            if attempt.machines.get(rank) is not node:
                return  # of an earlier process, whose children write on
            shown = functools.partial(self._note_shown, node, rank, size_of(text))
            self._write(self._tasks[rank].label, stream, text, shown)
        elif "exit" in message:
            rank, status, last = message["exit"]
            if attempt.running.pop(rank, None) is not None and status:
                code, line = end_of(self._tasks[rank], node.name, status, last)
                self._fail(attempt, code, line, code == STATUS_PEER)
        elif "refused" in message:
            reason, advice = message["refused"]
            line = f"{node.name}: {reason}" + (f"; {advice}" if advice and node.beats else "")
            self._lose(attempt, node, STATUS_NODE, line, False)
        elif "lost" in message:
            self._lose(attempt, node, STATUS_PEER, f"lost {message['lost']}", True)
        elif "remark" in message:
            self._report(message["remark"])
        elif "back" in message and len(attempt.running) == len(attempt.machines):
            self._report(f"{node.name} is back; ending all processes to go on with it")
            attempt.grows = True
            self._end(attempt, signal.SIGTERM, self._plan.grace_seconds)
        elif "told" in message:
            # A machine's second signal kills; batch systems send one to every machine.
            if node in attempt.told_by:
                self._signal(attempt, signal.SIGKILL)
            elif attempt.told is None:
                attempt.told = message["told"]
                self._end(attempt, attempt.told, self._plan.grace_seconds)
            attempt.told_by.add(node)

    def _note_shown(self, node, rank, size):
        size += self._shown.get((node, rank), 0)
        if size >= REPORTED_BYTES:
            node.send({"shown": [rank, size]})
            size = 0
        self._shown[node, rank] = size

    def _lose(self, attempt, node, status, line, is_gone):
        ranks = [rank for rank, owner in attempt.running.items() if owner is node]
        for rank in ranks:
            del attempt.running[rank]
        if is_gone and node not in attempt.lost and node in self._open:
            attempt.lost.append(node)
        if ranks:
            self._fail(attempt, status, line)

    def _fail(self, attempt, status, line, is_told=False):
        attempt.failures.append((status, line, is_told))
        if len(attempt.failures) > 1 or attempt.told is not None or attempt.grows:
            return
        # Other processes may report the cause.
        settled = time.monotonic() + _SETTLE_SECONDS
        attempt.deadlines = [
            (settled, signal.SIGTERM),
            (settled + _END_SECONDS, signal.SIGKILL),
        ]

    def _end(self, attempt, number, seconds):
        self._signal(attempt, number)
        attempt.deadlines = [(time.monotonic() + seconds, signal.SIGKILL)]

    def _find_silent(self, attempt, heard, waited):
        """Gives up machines that were silent for too long, for example frozen ones."""
        for node in set(attempt.running.values()):
            self._silent[node] = 0.0 if node is heard else self._silent[node] + waited
            if node.beats and self._silent[node] > SILENCE_SECONDS:
                lost = f"{node.name}: no sign of life for {SILENCE_SECONDS:.0f} s"
                self._lose(attempt, node, STATUS_PEER, f"lost {lost}", True)

    def _signal(self, attempt, number):
        for node in set(attempt.running.values()):
            node.send({"signal": int(number)})

    def _look_for(self, absent, over):
        while not over.wait(_PROBE_SECONDS):
            for node in absent:
                if node.reaches(self._program) and not over.is_set():
                    self._events.put((node, {"back": True}))
                    return

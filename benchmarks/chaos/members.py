"""A disturbed run whose workers leave and join, and its rules."""

import json
import shutil
import signal
import threading
import time

from benchmarks.chaos import events
from benchmarks.chaos.run import Broken, Run

_POLL_SECONDS = 0.2
TOO_FEW = "error: too few workers are present"
STATUS_STOPPED = 75
# A worker may still save one step in progress, and one that had ended.
_MOST_LATE = 2


class Watch:
    """Finds out from the workers' files who trains, and whether two parts trained at the same time.

    Two parts would save in two generations in turn, or two groups in one generation.

    Attributes:
        newest: number and members of the newest generation that saved a step.
        fault: the broken rule, or None.
    """

    def __init__(self):
        self.newest = 0, ()
        self.fault = None
        self._members_of = {}
        self._states = {}
        self._late = {}

    def look(self, task, number, members, saved):
        """Reads a worker's state.

        Args:
            number: number of the last generation that the worker agreed to.
            members: members of this generation.
            saved: (generation, step) of the worker's last save, or None.
        """
        if saved is None or saved == self._states.get(task):
            return
        self._states[task] = saved
        if saved[0] == number:
            others = self._members_of.setdefault(number, members)
            if others != members:
                self.fault = f"both {others} and {members} train as generation {number}"
        if saved[0] >= self.newest[0]:
            self.newest = saved[0], self._members_of.get(saved[0], ())
        else:
            late = self._late[task, saved[0]] = self._late.get((task, saved[0]), 0) + 1
            if late > _MOST_LATE:
                self.fault = (
                    f"worker {task} saved step {saved[1]} of generation {saved[0]} after"
                    f" generation {self.newest[0]} had begun to train"
                )


class MembersRun(Run):
    """A `Run` with a folder per worker, observed by a `Watch`."""

    # One minute on an idle machine, many on a busy one.
    bound_seconds = 900

    def __init__(self, network, disks, max_steps, **options):
        self._watch = Watch()
        self._is_over = threading.Event()
        super().__init__(network, disks, max_steps, **options)
        self._thread = threading.Thread(target=self._keep_watch, daemon=True)
        self._thread.start()

    @property
    def chief(self):
        """Returns the chief of the newest generation that saved."""
        members = self._watch.newest[1]
        return members[0] if members else 0

    @property
    def keepers(self):
        """Returns the chief and the other workers that save."""
        return self._watch.newest[1][: 1 + self._options["replicate_checkpoints"]]

    @property
    def hosts(self):
        """Returns all workers."""
        return set(range(self.network.num_hosts))

    def may_go_on(self, present):
        """Returns True if these workers alone may continue."""
        from terngrad_tf.distribute.cluster.membership import Generation

        found = [read for task in self.hosts if (read := self._read(task))]
        number, members, _ = max(found, key=lambda read: read[0])
        return Generation(number, members).may_continue(present)

    def await_members(self, expected):
        """Waits until exactly these workers have saved; returns the seconds."""
        begin, number = time.monotonic(), self._watch.newest[0]
        while time.monotonic() < begin + self.bound_seconds:
            self.raise_fault()
            if set(self._watch.newest[1]) == set(expected):
                return time.monotonic() - begin
            if self.is_over():
                break
            time.sleep(_POLL_SECONDS)
        raise Broken(
            f"workers {sorted(expected)} saved no step within {self.bound_seconds} s; generation"
            f" {number} is now {self._watch.newest}: {self.ends()}"
        )

    def sizes(self):
        """Returns the lengths of all logs, for `await_line`."""
        return {task: self.log(task).stat().st_size for task in self.hosts}

    def await_line(self, tasks, text, sizes):
        """Waits until each worker has logged a text after the given length of its log."""
        end = time.monotonic() + self.bound_seconds
        for task in tasks:
            while text not in self.log(task).read_bytes()[sizes[task] :].decode():
                self.raise_fault()
                if time.monotonic() > end:
                    raise Broken(f"worker {task} did not log {text!r}: {self.ends()}")
                time.sleep(_POLL_SECONDS)

    def empty(self, task):
        """Removes all files of a worker that does not run."""
        shutil.rmtree(self.train_dir(task))

    def raise_fault(self):
        """Raises Broken if two parts trained."""
        if self._watch.fault:
            raise Broken(self._watch.fault)

    def check(self):
        """Checks the rules that always hold; all workers' files must be readable."""
        super().check()
        self.raise_fault()
        for task in self.keepers:
            self.saved(task)

    def stop(self):
        """Stops the present workers with SIGTERM; they save and end."""
        there = self.hosts - self.lost
        for task in there:
            self._supervisors[task].send_signal(signal.SIGTERM)
        for task in there:
            if (status := self.end_of(task, self.bound_seconds)) != STATUS_STOPPED:
                raise Broken(f"worker {task} ended with {status} after SIGTERM: {self.ends()}")

    def kill(self):
        """Ends all."""
        self._is_over.set()
        self._thread.join()
        super().kill()

    def _read(self, task):
        """Returns (number, members, last save) of a worker's newest generation or None."""
        try:
            text = (self.train_dir(task) / f".members-{task}.json").read_text()
        except FileNotFoundError:
            return None
        read = json.loads(text)
        saved = read["saved"] and (read["saved"]["generation"], read["saved"]["step"])
        return read["generation"]["number"], tuple(read["generation"]["members"]), saved

    def _keep_watch(self):
        while not self._is_over.wait(_POLL_SECONDS):
            for task in self.hosts:
                if read := self._read(task):
                    self._watch.look(task, *read)


def _without(run, lost, end):
    """Waits until the others continue without the lost workers, which return with `end()`.

    If they may not continue, they must end with one line and save nothing. Returns the seconds
    until they saved, or None.
    """
    others, sizes, step = run.hosts - lost, run.sizes(), run.step()
    if run.may_go_on(others):
        seconds = run.await_members(others)
    else:
        seconds = None
        run.await_line(others, TOO_FEW, sizes)
        if run.step() > step + _MOST_LATE:
            raise Broken(f"workers {sorted(others)} continued from step {step} to {run.step()}")
    end()
    return seconds


def _leave(run, task, draw):
    """Loses a host, which returns some seconds after the others have continued."""

    def back():
        time.sleep(draw.uniform(*events.BRIEF))
        run.start(task)

    run.kill_host(task)
    return _without(run, {task}, back)


def _chief_leaves(run, task, draw):
    """Loses the chief's host, which returns later."""
    del task
    return _leave(run, run.chief, draw)


def _chief_is_replaced(run, task, draw):
    """Loses the chief's host and disk for good; a new machine takes its place later."""
    del task
    chief = run.chief
    run.kill_host(chief)

    def back():
        run.empty(chief)
        time.sleep(draw.uniform(*events.BRIEF))
        run.start(chief)

    return _without(run, {chief}, back)


def _split(run, task, draw):
    """Splits the network in halves until the part that may not continue ends with a line."""
    del task
    hosts = sorted(run.hosts)
    draw.shuffle(hosts)
    part = set(hosts[: len(hosts) // 2])
    going, ending = (part, run.hosts - part)[:: 1 if run.may_go_on(part) else -1]
    sizes = run.sizes()
    with run.network.split(part):
        seconds = run.await_members(going)
        run.await_line(ending, TOO_FEW, sizes)
        step = run.step()
        run.go_on(1)
        run.raise_fault()
        if run.step() == step:
            raise Broken(f"workers {sorted(going)} did not continue: {run.ends()}")
    return seconds


def _fill_disk(run, task, draw):
    """Fills the disk of a worker that saves, until the worker ends."""
    task = draw.choice(run.keepers)
    with events.full(run.disks[task]):
        if (status := run.end_of(task, run.bound_seconds)) != events.STATUS_DISK:
            raise Broken(f"worker {task} ended with status {status} on a full disk")
        seconds = _without(run, {task}, lambda: None)
    run.start(task)
    return seconds


# Incidents after which the others continue alone.
ALONE = {
    "away": _leave,
    "chief_away": _chief_leaves,
    "chief_replaced": _chief_is_replaced,
    "split": _split,
    "disk_full": _fill_disk,
}
EVENTS = events.EVENTS | ALONE


def lose_chief(run):
    """Loses the chief's host for good; the others continue."""
    chief = run.chief
    run.kill_host(chief)
    return run.await_members(run.hosts - {chief})


def go_on_to(run, num_steps):
    """Stops the run, then continues for `num_steps` more steps to its end; returns the last one."""
    run.stop()
    run.max_steps = run.step() + num_steps
    for task in run.hosts - run.lost:
        run.start(task)
    run.finish()
    return run.max_steps

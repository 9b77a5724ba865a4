"""Incidents of a run of `benchmarks.chaos`."""

import contextlib
import os
import signal
import time

from benchmarks.chaos.run import Broken

STATUS_DISK = 4
# Seconds, shorter and longer than workers wait for each other.
BRIEF = 1, 8
LONG = 75, 80


def _kill(run, task, draw):
    """Kills the program."""
    del draw
    run.signal(task, signal.SIGKILL)


def _terminate(run, task, draw):
    """Stops the program with SIGTERM."""
    del draw
    run.signal(task, signal.SIGTERM)


def _lose_host(run, task, draw):
    """Kills all processes of a host, and starts the worker again some seconds later."""
    run.kill_host(task)
    time.sleep(draw.uniform(*BRIEF))
    run.start(task)


def _stop_for(seconds):
    def stop(run, task, draw):
        programs = run.programs(task)[1]
        run.signal(task, signal.SIGSTOP)
        time.sleep(draw.uniform(*seconds))
        for pid in programs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return stop


def _cut_for(seconds):
    def cut(run, task, draw):
        run.network.cut(task)
        try:
            time.sleep(draw.uniform(*seconds))
        finally:
            run.network.join(task)

    return cut


@contextlib.contextmanager
def full(disk):
    """Fills a disk in this context."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), open(filler, "wb") as file:
        while True:
            file.write(bytes(1 << 16))
    try:
        yield
    finally:
        filler.unlink()


def _fill_disk(run, task, draw):
    """Fills the disk of the run and its logs until the chief ends; restarts the ended workers."""
    del task, draw
    with full(run.disks[run.chief]):
        run.end_of(run.chief, run.bound_seconds)
    # The full disk may end other workers too.
    time.sleep(BRIEF[1])
    for other in range(run.network.num_hosts):
        if (status := run.end_of(other, 0)) == STATUS_DISK:
            run.start(other)
        elif status is not None:
            raise Broken(f"worker {other} ended with status {status} on a full disk")


EVENTS = {
    "killed": _kill,
    "told_to_stop": _terminate,
    "host_lost": _lose_host,
    "stopped_briefly": _stop_for(BRIEF),
    "stopped_long": _stop_for(LONG),
    "cut_briefly": _cut_for(BRIEF),
    "cut_long": _cut_for(LONG),
    "disk_full": _fill_disk,
}

"""Work divided among processes that report their progress."""

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from slim_data.common.errors import DataError, DataErrors
from slim_data.common.lazy import tf

_REPORT_SECONDS = 0.1
_STOP_SECONDS = 30


def num_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_processes(
    function: Callable[..., object],
    arguments: Sequence[tuple[Any, ...]],
    advance: Callable[[int], object],
) -> None:
    """Calls a function in several processes at once and waits until all are done.

    Each process is a fresh interpreter. If one fails or is killed, or this process is interrupted,
    the others end at their next report and close their files. After `DataErrors` in one process,
    the others finish. If this process is killed, the others end at once.

    Args:
        function: module-level function, called as `function(*arguments[i], advance)`. The counts
            that it passes to `advance` are summed.
        arguments: one picklable tuple per process.

    Raises:
        DataError, OSError: as the function raised it; `DataErrors` are joined into one.
        DataError: a process was killed.
        RuntimeError: the function raised any other exception.
    """
    context = multiprocessing.get_context("spawn")
    # Otherwise the first process starts the tracker, which lets signals through again.
    multiprocessing.resource_tracker.ensure_running()
    workers = {}
    try:
        for own in arguments:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(sender, function, own), daemon=True)
            with sender, _interrupts_wait():
                process.start()
            workers[receiver] = process
        _receive_all(workers, advance)
    finally:
        for receiver in workers:
            receiver.close()  # later reports of the processes then fail
        for process in workers.values():
            process.join(_STOP_SECONDS)
            process.kill()


def _receive_all(workers, advance):
    """Passes all reports on; raises the joined `DataErrors` after the last."""
    waiting, faults = set(workers), {}
    while waiting:
        for receiver in multiprocessing.connection.wait(waiting):
            try:
                is_last = _receive(receiver, workers[receiver], advance)
            except DataErrors as error:
                is_last, faults[receiver] = True, error.faults
            if is_last:
                waiting.remove(receiver)
    if faults:
        # In the order of the processes, independent of which ended first.
        raise DataErrors(fault for receiver in workers for fault in faults.get(receiver, ()))


def _receive(receiver, process, advance):
    """Passes one report on; returns True if it was the last."""
    try:
        message = receiver.recv()
    except EOFError:
        process.join()
        raise DataError(
            f"A process of the conversion ended early ({_ending(process.exitcode)}). Files that "
            "are finished are kept: run the same command to continue"
        ) from None
    if isinstance(message, Exception):
        raise message
    if message is not None:
        advance(message)
    return message is None


def _ending(exit_code):
    if exit_code >= 0:
        return f"status {exit_code}"
    return f"killed by signal {-exit_code}, {signal.Signals(-exit_code).name}"


def _end_with_parent():
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


def _work(sender, function, arguments):
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tf.load_for_program()
    pending, reported = 0, time.monotonic()

    def advance(count):
        nonlocal pending, reported
        pending += count
        if time.monotonic() - reported >= _REPORT_SECONDS:
            sender.send(pending)
            pending, reported = 0, time.monotonic()

    with contextlib.suppress(BrokenPipeError):
        try:
            function(*arguments, advance)
            sender.send(pending)
            sender.send(None)
        except BrokenPipeError:
            raise
        except (DataError, OSError) as error:
            sender.send(error)
        except Exception:
            sender.send(RuntimeError(f"In a worker process:\n{traceback.format_exc()}"))


@contextlib.contextmanager
def _interrupts_wait():
    # The processes inherit the mask. Ctrl-C reaches all of them, but only this one is to react.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""SIGTERM, with which schedulers reclaim machines: a run saves and ends, to be restarted."""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from terngrad_tf.common import messages
from terngrad_tf.common.last_line import write_last_line

# The system's status for a temporary failure: start again.
STATUS = os.EX_TEMPFAIL
# A longer step hangs, for example because another process does.
_LONGEST_STEP_SECONDS = 60.0
_TELL_SECONDS = 5.0
# Sockets that this process listens to.
_listening: set[socket.socket] = set()


class PreemptedError(RuntimeError):
    """SIGTERM stopped training, and the run is saved.

    Args:
        who: the process that got the signal, or None for this one.
        step: the last step.
        saved: the newest step that is saved, 0 for none. Default: the last step.
    """

    def __init__(self, who: str | None, step: int, saved: int | None = None):
        told = f"{who} was" if who else "it was"
        super().__init__(f"{stopped(step, saved)}: {told} told to by SIGTERM")
        self.step = step


def stopped(step: int, saved: int | None) -> str:
    """Returns the beginning of a line that names the last step and the newest saved step."""
    state = "which is saved"
    if saved is not None and saved != step:
        state = f"and step {saved} is saved" if saved else "and no step is saved"
    return f"stopped at step {step}, {state}"


@contextlib.contextmanager
def stops_on_sigterm(
    ask: Callable[[], Any],
    waits_for_step: Callable[[], bool] = lambda: True,
    give_up: Callable[[BaseException], Any] = lambda error: None,
) -> Iterator[Callable[..., None]]:
    """Makes SIGTERM request a last step, after which training saves and ends.

    If `waits_for_step()` is False, as before the first step, or no step ends within a minute, the
    process ends at once with `STATUS`. Does nothing outside the main thread, or if the program
    handles the signal itself.

    Args:
        ask: requests the last step; called in a thread.
        give_up: called with the reason, an error, before an immediate end.

    Yields:
        Function to call when the last step has ended; with True, when another step follows, which
        has a minute of its own.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield lambda goes_on=False: None
        return
    # Python's handlers wait for TensorFlow's calls; a thread reads this socket at once.
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    ended: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def listen():
        while (number := receiving.recv(1)) and number[0] != signal.SIGTERM:
            pass
        if not number:
            return
        if not waits_for_step():
            _end(give_up, "before the first step ended; nothing of this start is lost")
        ask()
        try:
            while ended.get(timeout=_LONGEST_STEP_SECONDS):
                pass
        except queue.Empty:
            seconds = f"{_LONGEST_STEP_SECONDS:g} s"
            _end(give_up, f"but no step ended within {seconds}; what was saved before is kept")

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    previous = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    _listening.add(receiving)
    try:
        yield lambda goes_on=False: ended.put(goes_on)
    finally:
        _listening.remove(receiving)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(previous)
        ended.put(False)
        sending.close()
        thread.join()
        receiving.close()


def _end_forked_on_sigterm():
    """Lets SIGTERM end a forked process, as a `PyDataset`'s worker.

    It would write to the socket of its parent, whose training would stop.
    """
    if _listening:
        _listening.clear()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_end_forked_on_sigterm)


def _end(give_up, why):
    line = f"told to stop by SIGTERM, {why}"
    # `give_up` may wait for an unreachable process.
    telling = threading.Thread(target=give_up, args=(RuntimeError(line),), daemon=True)
    telling.start()
    telling.join(_TELL_SECONDS)
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0] or "python"
    line = f"{program}: error: {line}; the same command goes on"
    write_last_line(messages.with_code(line))
    os._exit(STATUS)

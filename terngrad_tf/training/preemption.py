"""SIGTERM, by which schedulers take machines back: a run saves, and ends to be started again."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from terngrad_tf.last_line import write_last_line

# What the system's header calls a failure that passes: the same command is to be started again.
STATUS = os.EX_TEMPFAIL
# A step that takes longer hangs, as where another process of the cluster does.
_LONGEST_STEP_SECONDS = 60.0
# So long others are told of a process that ends at once.
_TELL_SECONDS = 5.0


class PreemptedError(RuntimeError):
    """Training was told to stop by SIGTERM, and was saved."""

    def __init__(self, who: str | None, step: int):
        told = f"{who} was" if who else "it was"
        super().__init__(f"stopped at step {step}, which is saved: {told} told to by SIGTERM")
        self.step = step


@contextlib.contextmanager
def stops_on_sigterm(
    ask: Callable[[], Any],
    waits_for_step: Callable[[], bool] = lambda: True,
    give_up: Callable[[BaseException], Any] = lambda error: None,
) -> Iterator[Callable[[], None]]:
    """Within, SIGTERM asks for a last step, after which who trains saves and ends.

    Before the first step has ended there is nothing to save, and it may take long: a process that
    need not wait is ended at once, with `STATUS`. So is one where no step ends within a minute. A
    program's own handler of the signal is left alone, and so is a thread other than the main one.

    Args:
        ask: function without arguments that asks for it, called in a thread.
        waits_for_step: function without arguments that tells whether to wait for a step to end.
            Default: yes.
        give_up: function of an error that says why the process ends at once, called before that.
            Default: does nothing.

    Yields:
        Function without arguments, to be called when the last step has ended.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield lambda: None
        return
    # Python's own handlers wait for the end of TensorFlow's calls; what is written here is read
    # by a thread at once.
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    step_ended = threading.Event()

    def listen():
        while (number := receiving.recv(1)) and number[0] != signal.SIGTERM:
            pass
        if not number:
            return
        if not waits_for_step():
            _end(give_up, "before the first step ended; nothing of this start is lost")
        ask()
        if not step_ended.wait(_LONGEST_STEP_SECONDS):
            seconds = f"{_LONGEST_STEP_SECONDS:g} s"
            _end(give_up, f"but no step ended within {seconds}; what was saved before is kept")

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    previous = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield step_ended.set
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(previous)
        step_ended.set()
        sending.close()
        thread.join()
        receiving.close()


def _end(give_up, why):
    line = f"told to stop by SIGTERM, {why}"
    # It may wait for a process that is out of reach.
    telling = threading.Thread(target=give_up, args=(RuntimeError(line),), daemon=True)
    telling.start()
    telling.join(_TELL_SECONDS)
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0] or "python"
    write_last_line(f"{program}: error: {line}; the same command goes on")
    os._exit(STATUS)

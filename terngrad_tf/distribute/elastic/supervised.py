"""Restarts a program when a worker is lost or joins."""

import os
import platform
import sys
from collections.abc import Callable
from typing import Any

from terngrad_tf.common import messages
from terngrad_tf.common.arguments import check_integer
from terngrad_tf.common.last_line import write_last_line
from terngrad_tf.distribute import private
from terngrad_tf.distribute.cluster.exits import exit_on_peer_error
from terngrad_tf.distribute.elastic.join import NewcomersError
from terngrad_tf.launcher.supervisor import STATUS_NEWCOMERS, can_supervise, may_fork, supervise

# Set in new processes that a supervisor starts; not in those that they start.
_VARIABLE = "TERNGRAD_TF_SUPERVISED"


def _num_threads():
    """Returns the number of this process's threads, those of libraries included; 0: not Linux."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


# Libraries start these again in a fork.
_THREADS_OF_IMPORTS = _num_threads()


def run_supervised(main: Callable[[], Any], max_restarts: int) -> None:
    """Runs the main function of a program, and restarts the program if a worker is lost or joins.

    This process becomes a supervisor of a child process that calls `main` within
    `exit_on_peer_error`. The supervisor restarts a child that was killed, lost a peer, saved
    because another worker got SIGTERM, or stopped to admit waiting workers (the latter is not
    counted). SIGTERM to the supervisor ends both. `main` must resume from its checkpoints. Linux
    only, in the main thread.

    A child is a fork of this process, so it need not load TensorFlow again. If the program has
    used TensorFlow's devices or started threads before, or if the machine has a GPU, a child is a
    new process with the same command line.

    Example: `if __name__ == "__main__": run_supervised(main, max_restarts=100)`, in a script.

    Args:
        main: function without arguments.
        max_restarts: most restarts in all.

    Raises:
        RuntimeError: this system is not Linux.
        ValueError: `max_restarts` is not an integer, 0 or more.
        SystemExit: in the supervisor, with the status of the last child, or 128 plus the number of
            the signal that ended it.
    """
    check_integer("max_restarts", max_restarts, 0)
    if not can_supervise():
        raise RuntimeError(f"`run_supervised` needs Linux. This system: {platform.system()}")
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0] or "python"
    if os.environ.pop(_VARIABLE, None) is None:
        command = None if _may_fork() else [sys.executable, *sys.orig_argv[1:]]
        if command is not None:
            os.environ[_VARIABLE] = "1"
        status = supervise(
            command,
            max_restarts,
            lambda line: print(f"{program}: {line}", file=sys.stderr, flush=True),
        )
        if status is not None:
            raise SystemExit(status)
    try:
        with exit_on_peer_error():
            main()
    except NewcomersError as error:
        write_last_line(messages.with_code(f"{program}: {error}"))
        raise SystemExit(STATUS_NEWCOMERS) from None


def _may_fork():
    """Returns True if this program works in a fork, which lacks devices and threads in use."""
    is_unused = private.devices_are_unknown() and _num_threads() <= _THREADS_OF_IMPORTS
    return is_unused and may_fork()

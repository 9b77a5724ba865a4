"""Ends a program with one line if another process of its cluster fails."""

import contextlib
import os
import sys
from collections.abc import Iterator

from terngrad_tf.common import messages
from terngrad_tf.common.last_line import (
    STATUS_INTERRUPTED,
    is_interrupt,
    one_line,
    write_last_line,
)
from terngrad_tf.distribute.cluster import rendezvous
from terngrad_tf.distribute.communication import endings, failures, peers
from terngrad_tf.launcher.supervisor import STATUS_PEER


@contextlib.contextmanager
def exit_on_peer_error() -> Iterator[None]:
    """Ends the program with one line and status 3 if another process of the cluster fails.

    The line is the last one on standard error. Put the context around the whole program, including
    the strategy, since processes may be missing or started differently. Ctrl-C also ends the
    program with one line, and status 130. If this process itself fails, its error passes unchanged,
    and the others end with its message.

    Example:
    >>> with exit_on_peer_error():
    ...     strategy = terngrad_tf.TernGradStrategy(num_nodes=1)

    Raises:
        SystemExit: with status 3, after a `PeerError` or TensorFlow's error from another process;
            with status 130, after Ctrl-C.
    """
    try:
        yield
        return
    except BaseException as raised:
        tasks, status = rendezvous.joined_tasks(), STATUS_PEER
        try:
            if is_interrupt(raised):
                raise KeyboardInterrupt from None
            with peers.propagate_errors(tasks), failures.peer_errors(tasks):
                raise
        except KeyboardInterrupt as error:
            peers.report_end(tasks, error)
            line, status = "interrupted", STATUS_INTERRUPTED
        except peers.PeerError as error:
            line = one_line(error)
            endings.note_told()
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0] or "python"
    write_last_line(messages.with_code(f"{one_line(program)}: error: {line}"))
    raise SystemExit(status)

"""How a program of a cluster ends where another process fails: with one line."""

import contextlib
import os
import sys
from collections.abc import Iterator

from terngrad_tf.distribute import endings, peers, rendezvous
from terngrad_tf.last_line import write_last_line

STATUS_PEER = 3


@contextlib.contextmanager
def exit_on_peer_error() -> Iterator[None]:
    """Ends the program with one line and status 3 where another process of the cluster fails.

    The line is the last one on standard error. Around all that a program does, the strategy
    included, whose processes may be missing or started differently. Where this process itself
    fails, its error passes unchanged, and the others end with what it says.

    Example:
    >>> with exit_on_peer_error():
    ...     strategy = terngrad_tf.TernGradStrategy(num_nodes=1)

    Raises:
        SystemExit: with status 3, after a `PeerError` or an error of TensorFlow that comes from
            another process.
    """
    try:
        yield
        return
    except BaseException:
        tasks = rendezvous.joined_tasks()
        try:
            with peers.propagate_errors(tasks), peers.peer_errors(tasks):
                raise
        except peers.PeerError as error:
            line = " ".join(str(error).split())
            endings.note_told()
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0] or "python"
    write_last_line(f"{program}: error: {line}")
    raise SystemExit(STATUS_PEER)

"""Log lines on standard output, in TernGrad's format, which scripts read.

absl.logging would write to standard error, in its own format.
"""

import datetime
import sys
import typing

from terngrad_tf.common.terminal import wrapped

if typing.TYPE_CHECKING:
    from terngrad_tf.distribute.communication.peers import Tasks


_LOG_FREQ = 10
_CLUSTER_LOG_FREQ = 30


def log(text: object) -> None:
    """Prints a line at once, with the time in front."""
    say(f"{datetime.datetime.now()}: {text}")


def say(text: str) -> None:
    """Prints a line at once, wrapped to the width of a terminal."""
    print(wrapped(text, sys.stdout), flush=True)


def log_freq(tasks: "Tasks | None") -> int:
    """Returns the number of steps between log lines: 10, or 30 in a cluster."""
    return _LOG_FREQ if tasks is None else _CLUSTER_LOG_FREQ


def log_worker(
    worker: int,
    step: int,
    loss: float,
    examples_per_second: float,
    seconds: float,
    precision_at_1: float,
) -> None:
    """Prints the progress of a worker of a cluster."""
    say(
        f"Worker {worker}: {datetime.datetime.now()}: step {step}, loss = {loss:.2f}"
        f"({examples_per_second:.1f} examples/sec; {seconds:.3f}  sec/batch), "
        f"accuracy = {precision_at_1:.4f}"
    )

"""Lines of what a run does, on standard output.

They look as those of TernGrad, which scripts read; absl.logging writes to standard error, in a form
of its own. On a terminal they break between words, so that none is longer than it is wide.
"""

import datetime
import sys
import typing

from terngrad_tf.terminal import wrapped

if typing.TYPE_CHECKING:
    from terngrad_tf.distribute.communication.peers import Tasks


_LOG_FREQ = 10
_CLUSTER_LOG_FREQ = 30


def log(text: object) -> None:
    """Prints a line at once, with the time in front."""
    say(f"{datetime.datetime.now()}: {text}")


def say(text: str) -> None:
    """Prints a line at once; a terminal gets as many as its width asks for."""
    print(wrapped(text, sys.stdout), flush=True)


def log_freq(tasks: "Tasks | None") -> int:
    """Steps from one log line to the next: 10, in a cluster 30.

    Args:
        tasks: `TernGradStrategy.tasks`.
    """
    return _LOG_FREQ if tasks is None else _CLUSTER_LOG_FREQ


def log_worker(
    worker: int,
    step: int,
    loss: float,
    examples_per_second: float,
    seconds: float,
    precision_at_1: float,
) -> None:
    """Prints how far a worker of a cluster is.

    Args:
        worker: its number.
        step: steps done.
        loss: the loss.
        examples_per_second: its own speed.
        seconds: time of a step.
        precision_at_1: share of the examples whose class has the largest logit.
    """
    say(
        f"Worker {worker}: {datetime.datetime.now()}: step {step}, loss = {loss:.2f}"
        f"({examples_per_second:.1f} examples/sec; {seconds:.3f}  sec/batch), "
        f"accuracy = {precision_at_1:.4f}"
    )

"""Arguments and output of `terngrad stop`."""

import argparse
import pathlib
from collections.abc import Sequence

from terngrad_tf.bin.command.parsing import fail, make_parser
from terngrad_tf.launcher import background

PROGRAM = "terngrad stop"
_DESCRIPTION = """\
Ends runs of `terngrad run --background LOG`: all their processes, on all machines. Gives each
process the time to save that --grace of terngrad run gave it.

  terngrad stop a.log
"""


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    usage = "terngrad stop [options] LOG [LOG ...]"
    result = make_parser(PROGRAM, _DESCRIPTION, usage=usage)
    result.add_argument(
        "--grace",
        type=float,
        default=background.GRACE_SECONDS,
        metavar="S",
        help="Seconds after which a run is killed that does not end. Default: %(default).0f.",
    )
    result.add_argument("logs", nargs="+", help=argparse.SUPPRESS)
    return result


def run(arguments: Sequence[str]) -> int:
    """Runs the command with the words after its name; returns the exit status."""
    values, status = parser().parse_args(arguments), 0
    if not 0 <= values.grace < float("inf"):
        rule = "must be seconds of 0 or more"
        return fail(PROGRAM, f"`--grace` {rule}. Received: --grace={values.grace}")
    for log in values.logs:
        try:
            if not pathlib.Path(log).exists() and not background.pid_file(log).exists():
                raise background.BackgroundError(f"{log}: no such log of a run")
            pid = background.stop(log, values.grace)
        except background.BackgroundError as error:
            status = fail(PROGRAM, error)
            continue
        print(f"{log}: {f'stopped process {pid}' if pid else 'Stopped already.'}", flush=True)
    return status

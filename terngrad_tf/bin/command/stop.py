"""Arguments and output of `terngrad stop`."""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from terngrad_tf.launcher import background

PROGRAM = "terngrad stop"
STATUS_ERROR = 2
_DESCRIPTION = """\
Ends runs of `terngrad run --background LOG`: all their processes, on all machines. Gives each
process the time to save that --grace of terngrad run gave it.

  terngrad stop a.log
"""


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    result = argparse.ArgumentParser(
        prog=PROGRAM,
        usage="terngrad stop [options] LOG [LOG ...]",
        description=_DESCRIPTION,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        error = f"`--grace` must be seconds of 0 or more. Received: --grace={values.grace}"
        print(f"{PROGRAM}: error: {error}", file=sys.stderr, flush=True)
        return STATUS_ERROR
    for log in values.logs:
        try:
            if not pathlib.Path(log).exists() and not background.pid_file(log).exists():
                raise background.BackgroundError(f"{log}: no such log of a run")
            pid = background.stop(log, values.grace)
        except background.BackgroundError as error:
            print(f"{PROGRAM}: error: {error}", file=sys.stderr, flush=True)
            status = STATUS_ERROR
            continue
        print(f"{log}: {f'stopped process {pid}' if pid else 'Stopped already.'}", flush=True)
    return status

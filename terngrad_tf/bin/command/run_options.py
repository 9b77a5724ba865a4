"""Options of `terngrad run`."""

import argparse
import os

from terngrad_tf.bin.command import remote_options
from terngrad_tf.bin.command.parsing import make_parser
from terngrad_tf.launcher.tasks import PLACE

PROGRAM = "terngrad run"
# Queues wait no longer than 292 years.
_MOST_SECONDS = 10**9
# No shell expands ~ in `--option=~/path` or in a file.
_PATH = os.path.expanduser
_DESCRIPTION = """\
Starts a training script in every process of a cluster, sets TF_CONFIG, shows the processes' output,
and ends all processes if one fails.

  terngrad run -np 2 train.py                        two processes on this machine
  terngrad run -H host1,host2 train.py               one on each host, over ssh with a key
  terngrad run --nodes 2 --node 0 --chief host1:2222 train.py   without ssh; on each machine
  srun terngrad run train.py                         under Slurm
  terngrad run -H host1,host2 --background a.log train.py       and terngrad stop a.log
"""
_EPILOG = """\
Options of terngrad run stand before the script; what follows the script goes to the script.

A script (*.py) or a module (-m) is run by this Python. Anything else is a program, such as bash.
Other machines need the same Python, script and working folder at the same paths; --python names
another Python there, and --sync copies the working folder.

Every process gets TF_CONFIG, and for shell scripts TERNGRAD_TF_JOB (worker or ps), TERNGRAD_TF_TASK
(its number) and TERNGRAD_TF_LOCAL_RANK (its number on its machine). The variables TF_*, XLA_*,
KERAS_*, TERNGRAD_TF_* and PYTHONPATH of this shell go to all machines, others by --env.
TF_CPP_MIN_LOG_LEVEL is 2 unless you set it, which hides remarks of TensorFlow.

The exit status is that of the process that failed first; 128 plus the number of the signal that
ended it; 2 if a machine cannot be used or an option is wrong; 130 after Ctrl-C.
"""


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    usage = "terngrad run [options] (script.py | -m module | program) [arguments]"
    result = make_parser(PROGRAM, _DESCRIPTION, usage=usage, epilog=_EPILOG)
    _add_places(result.add_argument_group("where the processes run"))
    _add_program(result.add_argument_group("what they run"))
    _add_manner(result.add_argument_group("how they run"))
    result.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return result


def _add_places(where):
    where.add_argument(
        "-np", "--np", type=int, metavar="N", help="N processes on this machine. Default: 1."
    )
    where.add_argument(
        *("-H", "--hosts"),
        dest="hosts",
        metavar="[USER@]HOST[:N],...",
        help="N processes on each host, over ssh; default 1. The first host is the chief.",
    )
    where.add_argument(
        "--port",
        type=int,
        help="With -H or --rank-table, port of a host's first process; the next takes the next."
        f" Default: {remote_options.PORT}.",
    )
    where.add_argument(
        "--worker-hosts", metavar="HOST:PORT,...", help="Instead of -H, address of each process."
    )
    where.add_argument(
        "--ps-hosts",
        default="",
        metavar="HOST:PORT,...",
        help="With --worker-hosts, addresses of parameter servers.",
    )
    where.add_argument(
        "--rank-table",
        type=_PATH,
        metavar="FILE",
        help="This machine's processes of a rank table (JSON).",
    )
    where.add_argument(
        "--server-id",
        default="",
        metavar="ID",
        help="With --rank-table, this machine. Default: the one with an address of this machine.",
    )
    where.add_argument(
        "--nodes", type=int, metavar="N", help="Number of machines that start this command."
    )
    where.add_argument(
        "--node", type=int, metavar="I", help="With --nodes, number of this machine, from 0."
    )
    where.add_argument(
        "--chief", metavar="HOST:PORT", help="With --nodes, address of machine 0 for the others."
    )
    where.add_argument(
        "--name",
        default="",
        metavar="HOST",
        help="With --nodes, this machine's name for the others. Default: the address from which"
        " it connects.",
    )


def _add_program(what):
    what.add_argument(
        *("-m", "--module"),
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="Module to run instead of a script, followed by its arguments.",
    )
    remote_options.add_options(what)
    what.add_argument(
        "--sync",
        action="store_true",
        help="First copy the working folder to the same path on all hosts.",
    )
    what.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="Variable for all processes; without a value, that of this shell. Repeat it.",
    )
    what.add_argument(
        "--each",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Variable for one worker: the first for worker 0, the second for worker 1, ...",
    )
    what.add_argument(
        "--token-file",
        type=_PATH,
        metavar="FILE",
        help="Secret; admits only processes that have the same.",
    )


def _add_manner(how):
    how.add_argument(
        "--dry-run", action="store_true", help="Print what would start where; start nothing."
    )
    how.add_argument(
        "--background",
        type=_PATH,
        metavar="LOG",
        help="Return once all run, and go on with the output in LOG. `terngrad stop LOG` ends it.",
    )
    how.add_argument(
        "--log-dir",
        type=_PATH,
        metavar="DIR",
        help="Also write the lines of each process to DIR/<number>.log. {rank} in DIR stands for"
        " the number, and DIR then for a file.",
    )
    how.add_argument(
        "--max-restarts",
        type=int,
        default=0,
        metavar="K",
        help="Restart all processes up to K times after a failure. Default: 0.",
    )
    how.add_argument(
        "--min-workers",
        type=int,
        default=0,
        metavar="N",
        help="With --max-restarts, go on without lost machines if N processes are left.",
    )
    how.add_argument(
        "--start-timeout",
        type=float,
        default=600,
        metavar="S",
        help="Seconds to wait for machines of --nodes, and for lost ones. Default: 600.",
    )
    how.add_argument(
        "--grace",
        type=float,
        default=90,
        metavar="S",
        help="Seconds to save and end after Ctrl-C or SIGTERM. Default: 90.",
    )


def places(values: argparse.Namespace) -> tuple[tuple[str, str | None], ...]:
    """Returns (option, value) of the options that list all machines."""
    return (
        ("-H", values.hosts),
        ("--worker-hosts", values.worker_hosts),
        ("--rank-table", values.rank_table),
    )


def check(values: argparse.Namespace, is_by_hand: bool) -> None:
    """Checks ranges of options, and options that limit one another.

    Args:
        is_by_hand: whether each machine starts the command.
    """
    _check_ranges(values)
    _check_together(values)
    if is_by_hand and (values.each or values.dry_run):
        flag = "--each" if values.each else "--dry-run"
        raise ValueError(f"`{flag}` must be given with -np, -H or --worker-hosts")
    for flag, entries in (("--env", values.env), ("--each", values.each)):
        for name in (entry.partition("=")[0] for entry in entries):
            if name in PLACE:
                raise ValueError(f"`{flag}` must not name {name}, which terngrad run sets itself")
    if "TF_CONFIG" in os.environ:
        raise ValueError("TF_CONFIG is set already; unset it, since terngrad run sets it itself")


def _check_ranges(values):
    paths = ("--log-dir", values.log_dir), ("--token-file", values.token_file)
    for flag, value in (*places(values), *paths):
        if value == "":  # mostly a shell's variable that is not set
            raise ValueError(f"`{flag}` must not be empty. Received: ''")
    if values.np is not None and values.np < 1:
        raise ValueError(f"`-np` must be a positive integer. Received: -np={values.np}")
    for flag, number in (
        ("--max-restarts", values.max_restarts),
        ("--min-workers", values.min_workers),
    ):
        if number < 0:
            raise ValueError(f"`{flag}` must be 0 or more. Received: {flag}={number}")
    for flag, seconds in (("--start-timeout", values.start_timeout), ("--grace", values.grace)):
        if not 0 < seconds <= _MOST_SECONDS:
            rule = f"positive seconds, at most {_MOST_SECONDS:,}"
            raise ValueError(f"`{flag}` must be {rule}. Received: {flag}={seconds}")
    if values.port is not None and not 0 < values.port < 2**16:
        raise ValueError(f"`--port` must be 1 to 65535. Received: --port={values.port}")


def _check_together(values):
    """Checks options that need one another, or exclude one another."""
    if values.min_workers and not values.max_restarts:
        raise ValueError("`--min-workers` must be given with --max-restarts, which it needs")
    for flag, value, where in (
        ("--sync", values.sync, ("-H", "--worker-hosts")),
        ("--port", values.port is not None, ("-H", "--rank-table")),
        ("--ps-hosts", values.ps_hosts, ("--worker-hosts",)),
        ("--server-id", values.server_id, ("--rank-table",)),
    ):
        if value and not any(dict(places(values))[other] for other in where):
            raise ValueError(f"`{flag}` must be given with {' or '.join(where)}")
    if values.np is not None and (values.worker_hosts or values.rank_table):
        raise ValueError("`-np` must not be given with --worker-hosts or --rank-table")
    if values.min_workers and values.ps_hosts:
        raise ValueError("`--min-workers` must not be given with --ps-hosts")

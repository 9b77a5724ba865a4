"""Starts the jobs of a cluster on their hosts over ssh, or stops them.

`scripts/run_dist.sh` and `scripts/stop_dist.sh` call it with values of `scripts/config_dist.sh`:

    python -m terngrad_tf.bin.jobs.launch --workspace /home/me/terngrad \\
        --worker_host a:2222 --worker_host b:2222 --worker_device 0 --worker_device 0 \\
        --data_dir /data/0 --data_dir /data/1 --worker_script scripts/run_single_worker_cifarnet.sh
"""

import argparse
import datetime
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

from slim_data.cli import help_arguments
from slim_data.common.errors import printable
from terngrad_tf.common.addresses import parse_addresses

DESCRIPTION = "Starts or stops the workers and parameter servers of a cluster over ssh."
STOP_SCRIPT = "scripts/stop_single.sh"
_EXPERIMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Never asks for a password, and soon gives up on a host that does not answer.
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15")


class LaunchError(Exception):
    """A job that could not be started or stopped."""


def parser() -> help_arguments.Parser:
    """Returns the program's parser."""
    result = help_arguments.Parser(prog="launch", description=DESCRIPTION)
    for name, text in (
        ("worker_host", "host:port of a worker; worker 0, the chief, first."),
        ("worker_device", "CUDA_VISIBLE_DEVICES of each worker, such as 0 or 0,1; - for the CPU."),
        ("data_dir", "Folder of each worker's training files, on its host."),
        ("ps_host", "host:port of a parameter server."),
    ):
        result.add_argument(f"--{name}", action="append", default=[], help=f"{text} Repeat it.")
    for name, text in (
        ("workspace", "Folder of the checkout, the same on all hosts."),
        ("worker_script", "Script that starts a worker, within the workspace."),
        ("ps_script", "Script that starts a parameter server, within the workspace."),
        ("experiment_id", "Name for logs and folders. Default: the date. With --stop: all."),
        ("ssh_config", "Configuration file for ssh (users, ports, keys). Default: ssh's own."),
    ):
        result.add_argument(f"--{name}", default="", help=text)
    result.add_argument("--dry_run", action="store_true", help="Print every command, run none.")
    result.add_argument("--stop", action="store_true", help="Stop all jobs.")
    return result


def commands(values: argparse.Namespace) -> list[list[str]]:
    """Returns the ssh command of each job, workers before parameter servers.

    Args:
        values: parsed arguments.

    Returns:
        List of (description, list of str).

    Raises:
        ValueError: an argument is invalid.
    """
    for name in ("worker_host", "worker_device", "data_dir"):
        if len(getattr(values, name)) != len(values.worker_host):
            raise ValueError(
                f"`{name}` must be given once for each of the {len(values.worker_host)} workers."
                f" Received: {len(getattr(values, name))} times"
            )
    workers = parse_addresses("worker_host", ",".join(values.worker_host))
    servers = parse_addresses("ps_host", ",".join(values.ps_host))
    if not workers:
        raise ValueError("`worker_host` must be given. Received: no worker")
    if not values.workspace.startswith("/"):
        raise ValueError(f"`workspace` must start with /. Received: {values.workspace!r}")
    if values.experiment_id and not _EXPERIMENT.fullmatch(values.experiment_id):
        raise ValueError(
            "`experiment_id` must be letters, digits and ._- only."
            f" Received: experiment_id={values.experiment_id!r}"
        )
    for name, needed in (("worker_script", True), ("ps_script", bool(servers))):
        if needed and not values.stop and not getattr(values, name):
            raise ValueError(f"`{name}` must be given. Received: {name}=''")
    lists = [",".join(servers), ",".join(workers)]
    jobs = []
    for job, addresses in (("worker", workers), ("ps", servers)):
        for task, address in enumerate(addresses):
            if values.stop:
                remote = ["bash", STOP_SCRIPT, job, str(task), values.experiment_id]
            else:
                extra = (
                    [values.worker_device[task], values.data_dir[task]] if job == "worker" else []
                )
                script = values.worker_script if job == "worker" else values.ps_script
                remote = ["bash", script, *lists, job, str(task), *extra, values.experiment_id]
            remote = f"cd -- {shlex.quote(values.workspace)} && exec {shlex.join(remote)}"
            host = address.rpartition(":")[0].strip("[]")
            config = ["-F", values.ssh_config] if values.ssh_config else []
            jobs.append((f"{job} {task} on {host}", [*_SSH, *config, "--", host, remote]))
    return jobs


def launch(values: argparse.Namespace) -> None:
    """Starts or stops all jobs; `values` are the parsed arguments.

    Raises:
        ValueError: an argument is invalid.
        LaunchError: a job could not be started (earlier jobs were stopped) or stopped.
    """
    if not values.experiment_id and not values.stop:
        values.experiment_id = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    jobs = commands(values)
    if not values.stop:
        print(f"experiment {values.experiment_id}", flush=True)
    failed, started = [], 0
    try:
        for description, command in jobs:
            if values.dry_run:
                print(shlex.join(command), flush=True)
                continue
            print(f"{'stopping' if values.stop else 'starting'} {description}", flush=True)
            if not _succeeds(command):
                failed.append(description)
                if not values.stop:
                    break
            started += 1
    except KeyboardInterrupt:
        _undo(values, started)
        raise
    if failed:
        _undo(values, started)
        raise LaunchError(f"failed: {', '.join(failed)}; the lines above say why")


def _undo(values, count):
    """Stops the first `count` jobs, started by this call, which would wait for the rest."""
    if values.stop or values.dry_run:
        return
    values.stop = True
    for description, command in commands(values)[:count]:
        print(f"stopping {description}", flush=True)
        _succeeds(command)


def _succeeds(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0


def main(argv: Sequence[str]) -> int:
    """Runs the program; `argv` is its command line. Returns the exit status."""
    try:
        launch(parser().parse_args(argv[1:]))
    except (ValueError, LaunchError) as error:
        print(f"launch: error: {printable(error)}", file=sys.stderr, flush=True)
        return 2
    except KeyboardInterrupt:
        print("launch: error: interrupted", file=sys.stderr, flush=True)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

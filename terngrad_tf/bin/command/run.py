"""Arguments of `terngrad run`, and their effects."""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from terngrad_tf.bin.command import remote_options
from terngrad_tf.common import messages, tokens
from terngrad_tf.common.addresses import is_address
from terngrad_tf.common.arguments import shown
from terngrad_tf.launcher import batch_systems, remote_nodes
from terngrad_tf.launcher.coordinator import STATUS_NODE, Coordinator, Plan
from terngrad_tf.launcher.hosts import Host, parse_hosts
from terngrad_tf.launcher.nodes import ENDED_BY_SSH, LocalNode, LostError, SshNode, explain_ssh

PROGRAM = "terngrad run"
_DESCRIPTION = """\
Starts a training script in every process of a cluster, sets TF_CONFIG, shows the processes' output,
and ends all processes if one fails.

  terngrad run -np 2 train.py                        two processes on this machine
  terngrad run -H host1,host2 train.py               one on each host, over ssh with a key
  terngrad run --nodes 2 --node 0 --chief host1:2222 train.py   by hand, on each machine
  srun terngrad run train.py                         under Slurm
"""
_EPILOG = """\
A script (*.py) or a module (-m) runs by the same Python at the same path on every machine, in the
folder of the same path as this one; --python and --sync change that. Anything else is a program.
Variables whose names begin with TF_, XLA_, KERAS_ or TERNGRAD_TF_, PYTHONPATH and --env variables
go to all machines. TERNGRAD_TF_LOCAL_RANK counts the processes of a machine. TF_CPP_MIN_LOG_LEVEL
is 2 unless it is set, which hides TensorFlow's remarks.

The exit status is that of the process that failed; 128 plus the number of the signal if a signal
ended it; 2 if a machine cannot be used; 130 after Ctrl-C.
"""
_PASSED = ("TF_", "XLA_", "KERAS_", "TERNGRAD_TF_", "PYTHONPATH")
_NOT_COPIED = (".git", ".venv*", "__pycache__")


def parser() -> argparse.ArgumentParser:
    """Returns the command's parser."""
    result = argparse.ArgumentParser(
        prog=PROGRAM,
        usage="terngrad run [options] (script.py | -m module | program) [arguments]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = result.add_argument_group("where")
    where.add_argument(
        "-np", "--np", type=int, metavar="N", help="Processes of this machine. Default: 1."
    )
    where.add_argument(
        *("-H", "--hosts"),
        dest="hosts",
        metavar="[USER@]HOST[:SLOTS],...",
        help="Hosts, and the number of processes on each; the first is the chief.",
    )
    where.add_argument("--nodes", type=int, metavar="N", help="Machines on which this is started.")
    where.add_argument("--node", type=int, metavar="I", help="Number of this machine, from 0.")
    where.add_argument("--chief", metavar="HOST:PORT", help="Machine 0, as the others reach it.")
    where.add_argument(
        "--name", default="", help="With --nodes, this machine as the others reach it."
    )
    where.add_argument(
        "--port",
        type=int,
        help="With -H, the port of a host's first process, counted up."
        f" Default: {remote_options.PORT}.",
    )
    what = result.add_argument_group("what")
    remote_options.add_options(what)
    what.add_argument(
        *("-m", "--module"),
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="Module to run instead of a script, followed by its arguments.",
    )
    what.add_argument(
        "--env", action="append", default=[], metavar="NAME[=VALUE]", help="Variable for all."
    )
    what.add_argument(
        "--sync", action="store_true", help="Copy this folder to the same path on all hosts first."
    )
    what.add_argument("--token-file", help="File with the secret that all machines share.")
    when = result.add_argument_group("when something fails")
    when.add_argument(
        "--max-restarts", type=int, default=0, metavar="K", help="Restart all up to K times."
    )
    when.add_argument(
        "--min-workers", type=int, default=0, metavar="N", help="Continue with N if hosts are lost."
    )
    when.add_argument(
        "--start-timeout", type=float, default=600, metavar="S", help="Seconds to wait for hosts."
    )
    when.add_argument(
        "--grace", type=float, default=90, metavar="S", help="Seconds to end after a signal."
    )
    when.add_argument("--log-dir", metavar="D", help="Write each process's lines to D/<rank>.log.")
    result.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return result


def run(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: command line without the program's name.

    Returns:
        The exit status.
    """
    try:
        values = parser().parse_args(arguments)
        status, line = _run(values)
    except (ValueError, LostError) as error:
        status, line = STATUS_NODE, f"error: {error}"
    except OSError as error:
        status, line = STATUS_NODE, f"error: {error.filename or ''}: {error.strerror}"
    except KeyboardInterrupt:
        status, line = 128 + signal.SIGINT, "interrupted"
    if line is not None:
        _report(messages.with_code(line))
    return status


def _run(values):
    place = _place(values, os.environ)
    _check(values, place)
    plan = _plan(values, os.environ)
    token = _token(values)
    with contextlib.ExitStack() as stack:
        write = stack.enter_context(_writer(values.log_dir))
        if place is not None and place.node:
            ports = _ports_of(place, values.np or 1)
            last = remote_nodes.join(
                *(place.chief, place.node, place.name, ports),
                *(token, plan.start_timeout, write),
            )
            return last.get("over", (STATUS_NODE, "lost machine 0: the connection ended"))
        if place is not None:
            listener = stack.enter_context(
                remote_nodes.listen(place.chief[1], place.num_nodes, token)
            )
            host = Host(place.chief[0].strip("[]"), values.np or 1)
            nodes = [LocalNode(host, _ports_of(place, host.slots))]
            nodes += [
                remote_nodes.SocketNode(node, listener, plan.start_timeout)
                for node in range(1, place.num_nodes)
            ]
        else:
            nodes = _nodes(values)
        coordinator = Coordinator(plan, nodes, write, _report)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _: coordinator.tell(received))
        return coordinator.run()


def _place(values, environment):
    """Returns this machine's place if the command is started on each machine, else None."""
    own = (values.nodes, values.node, values.chief)
    if values.hosts is not None or own == (None, None, None) and values.np is not None:
        if own != (None, None, None):
            raise ValueError("`-H` must not be given with --nodes, --node or --chief")
        return None
    if own == (None, None, None):
        return batch_systems.slurm_place(environment)
    node = values.node
    if node is None:
        node = batch_systems.kubernetes_node(environment, socket.gethostname())
    if values.nodes is None or node is None or values.chief is None:
        raise ValueError("`--nodes`, `--node` and `--chief` must be given together")
    if not is_address(values.chief):
        raise ValueError(f"`--chief` must be host:port. Received: {shown(values.chief)}")
    if not 0 <= node < values.nodes:
        raise ValueError(f"`--node` must be 0 to {values.nodes - 1}. Received: --node={node}")
    host, _, port = values.chief.rpartition(":")
    return batch_systems.Place(values.nodes, node, (host.strip("[]"), int(port)), values.name)


def _check(values, place):
    if values.np is not None and values.np < 1:
        raise ValueError(f"`-np` must be a positive integer. Received: -np={values.np}")
    for name in ("max_restarts", "min_workers"):
        if getattr(values, name) < 0:
            flag = name.replace("_", "-")
            value = getattr(values, name)
            raise ValueError(f"`--{flag}` must be 0 or more. Received: --{flag}={value}")
    for name in ("start_timeout", "grace"):
        if not 0 < getattr(values, name) < float("inf"):
            flag, value = name.replace("_", "-"), getattr(values, name)
            raise ValueError(f"`--{flag}` must be positive seconds. Received: --{flag}={value}")
    if values.min_workers and not values.max_restarts:
        raise ValueError("`--min-workers` must be given with --max-restarts, which it needs")
    if values.sync and values.hosts is None:
        raise ValueError("`--sync` must be given with -H, whose hosts it copies to")
    if values.port is not None and (values.hosts is None or not 0 < values.port < 2**16):
        raise ValueError("`--port` must be 1 to 65535, and given with -H")
    if "TF_CONFIG" in os.environ:
        raise ValueError("TF_CONFIG is set already; unset it, since terngrad run sets it itself")
    if values.hosts is None and place is None and values.np is None:
        values.np = 1


def _plan(values, environment):
    command = list(values.command)
    script = None
    if command[:1] == ["--"]:
        del command[0]
    if values.module is not None:
        if not values.module:
            raise ValueError("`-m` must be followed by a module")
        command = [values.python, "-m", *values.module]
    elif not command:
        raise ValueError("a script, -m module or program must be given; see terngrad run --help")
    elif command[0].endswith(".py"):
        script = command[0]
        command = [values.python, *command]
    passed = {k: v for k, v in environment.items() if k.startswith(_PASSED)}
    for entry in values.env:
        name, equals, value = entry.partition("=")
        if not name or not equals and name not in environment:
            raise ValueError(f"`--env` must be NAME=VALUE, or a variable set here: {shown(entry)}")
        passed[name] = value if equals else environment[name]
    # Lines should appear when written, and apart from TensorFlow's remarks.
    passed.setdefault("PYTHONUNBUFFERED", "1")
    passed.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if values.token_file is not None:
        passed[tokens.VARIABLE] = tokens.token_from_file(values.token_file)
    return Plan(
        command=command,
        folder=os.getcwd(),
        script=script,
        environment=passed,
        max_restarts=values.max_restarts,
        min_workers=values.min_workers,
        grace_seconds=values.grace,
        start_timeout=values.start_timeout,
    )


def _token(values):
    if values.token_file is not None:
        return tokens.token_from_file(values.token_file)
    return tokens.token_from_environment()


def _ports_of(place, count):
    """Returns the ports of a machine's processes: after the chief's, on which machine 0 listens."""
    first = place.chief[1] + 1 + place.offset
    return list(range(first, first + count))


def _nodes(values):
    if values.hosts is None:
        return [LocalNode(Host("127.0.0.1", values.np), _free_ports(values.np))]
    hosts = parse_hosts(values.hosts)
    if values.np is not None:
        hosts = _first_slots(hosts, values.np)
    options = shlex.split(values.ssh)
    environment = remote_options.environment()
    first = values.port or remote_options.PORT
    nodes = []
    for host in hosts:
        ports = list(range(first, first + host.slots))
        if host.is_local():
            nodes.append(LocalNode(host, ports))
            continue
        if values.sync:
            _copy_folder(host, options)
        nodes.append(SshNode(host, ports, values.python, options, environment))
    return nodes


def _first_slots(hosts, count):
    """Returns the hosts with the first `count` slots."""
    available, taken = sum(host.slots for host in hosts), []
    if available < count:
        raise ValueError(
            f"`-np` must be at most the {available} slots of -H. Received: -np={count}"
        )
    for host in hosts:
        if count > 0:
            taken.append(dataclasses.replace(host, slots=min(host.slots, count)))
        count -= host.slots
    return taken


def _copy_folder(host, options):
    folder = os.getcwd()
    _report(f"copying {folder} to {host}")
    commands = ["mkdir", "-p", folder], ["tar", "-xzf", "-", "-C", folder]
    unpacked = " && ".join(map(shlex.join, commands))
    excluded = [f"--exclude={pattern}" for pattern in _NOT_COPIED]
    packing = subprocess.Popen(
        ["tar", "-czf", "-", *excluded, "-C", folder, "."], stdout=subprocess.PIPE
    )
    sending = subprocess.run(
        ["ssh", "-o", "BatchMode=yes", *options, "--", host.ssh_target, unpacked],
        stdin=packing.stdout,
        stderr=subprocess.PIPE,
        check=False,
    )
    packing.stdout.close()
    if packing.wait() or sending.returncode:
        told = sending.stderr.decode("utf-8", "replace").strip().splitlines()
        why = told[-1] if told else "tar failed"
        if sending.returncode == ENDED_BY_SSH:
            why = explain_ssh(ENDED_BY_SSH, why, "")
        raise LostError(f"{host}: cannot copy {folder}: {why}")


def _free_ports(count):
    """Returns unused ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


@contextlib.contextmanager
def _writer(log_dir):
    """Yields a function that writes processes' lines to the terminal and optionally to files."""
    lock, files = threading.Lock(), {}
    with contextlib.ExitStack() as stack:
        folder = None
        if log_dir is not None:
            folder = pathlib.Path(log_dir)
            folder.mkdir(parents=True, exist_ok=True)

        def write(rank, stream, text):
            with lock:
                _show(sys.stderr if stream == 2 else sys.stdout, f"[{rank}] {text}")
                if folder is not None:
                    if rank not in files:
                        path = folder / f"{rank}.log"
                        files[rank] = stack.enter_context(path.open("a", encoding="utf-8"))
                    _show(files[rank], text)

        yield write


def _show(stream: IO[str], text: str):
    # A closed pipe or a full disk must not end the training.
    with contextlib.suppress(OSError, ValueError):
        stream.write(text + "\n")
        stream.flush()


def _report(line):
    _show(sys.stderr, f"{PROGRAM}: {line}")

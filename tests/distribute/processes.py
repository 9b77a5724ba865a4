"""Clusters of real processes on one machine."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import numpy as np

from tests import forks

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_ports(count):
    """TCP ports without a listener."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start(script, addresses, index, arguments, before=()):
    """Starts worker `index` of the cluster of `addresses`.

    Args:
        script: a Python file.
        addresses: "host:port" of each worker.
        index: this worker's index.
        arguments: list of str.
        before: command that runs the process, such as one that enters a network namespace.

    Returns:
        `subprocess.Popen` with output and errors in one text pipe.
    """
    task = {"type": "worker", "index": index}
    environment = dict(
        os.environ,
        TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": task}),
        TF_CPP_MIN_LOG_LEVEL="2",
    )
    return subprocess.Popen(
        # A fork would be on the host of the tests.
        [*before, sys.executable, str(script), *arguments]
        if before
        else forks.command(script, *arguments),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_group(process):
    """Kills the whole group of processes that a `subprocess.Popen` leads, and waits for it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def outputs(processes, timeout):
    """Waits for all processes and returns their outputs; kills them at the timeout."""
    try:
        return [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


def run(script, num_hosts, folder, timeout=400, before=None, **config):
    """Runs a script on every host of a cluster and returns the results.

    Args:
        script: a Python file that calls `main`.
        num_hosts: number of processes.
        folder: folder for the files; `config` also names it.
        timeout: seconds until the processes are killed.
        before: for each host a command that runs the process. Default: none.
        **config: JSON values for the script: `job` and its arguments, or `jobs`, the arguments of
            several, which run after a single start of all processes.

    Returns:
        The results of each host: a dict of arrays; with `jobs` one for each job.
    """
    folder = pathlib.Path(folder)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(num_hosts)]
    files = [folder / f"{index}.npz" for index in range(num_hosts)]
    text = json.dumps({**config, "folder": str(folder)})
    processes = [
        start(script, addresses, index, [str(file), text], before[index] if before else ())
        for index, file in enumerate(files)
    ]
    for process, output in zip(processes, outputs(processes, timeout), strict=True):
        assert process.returncode == 0, output[-3000:]
    results = [dict(np.load(file, allow_pickle=False)) for file in files]
    if "jobs" not in config:
        return results
    return [
        {
            job: {
                name.removeprefix(f"{job}/"): array
                for name, array in result.items()
                if name.startswith(f"{job}/")
            }
            for job in config["jobs"]
        }
        for result in results
    ]


def main(functions):
    """Runs the jobs of a script that `run` started.

    Args:
        functions: {job: function}; each takes the configuration, a dict, and returns a dict of
            arrays.
    """
    output, config = sys.argv[1], json.loads(sys.argv[2])
    if "jobs" not in config:
        results = functions[config["job"]](config)
    else:
        results = {
            f"{job}/{name}": array
            for job, arguments in config["jobs"].items()
            for name, array in functions[job]({**config, **arguments}).items()
        }
    np.savez(output, **results)

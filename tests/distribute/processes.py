"""Clusters of real processes on one machine."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_ports(count):
    """TCP ports that nobody listens on."""
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
        index: this worker's place.
        arguments: list of str.
        before: command that runs the process, such as one that enters a network namespace.

    Returns:
        `subprocess.Popen` with the output, errors among it, as a text pipe.
    """
    task = {"type": "worker", "index": index}
    environment = dict(
        os.environ,
        TF_CONFIG=json.dumps({"cluster": {"worker": addresses}, "task": task}),
        TF_CPP_MIN_LOG_LEVEL="2",
        PYTHONPATH=f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    )
    return subprocess.Popen(
        [*before, sys.executable, str(script), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outputs(processes, timeout):
    """Waits for all processes and returns what each wrote; kills them where they take longer."""
    try:
        return [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


def run(script, num_hosts, folder, timeout=150, **config):
    """Runs a script on every host of a cluster and returns what each left.

    Args:
        script: a Python file that takes the path of an .npz file to write, and JSON.
        num_hosts: number of processes.
        folder: folder for the files; `config` names it too.
        timeout: seconds that they may take.
        **config: JSON values for the script.
    """
    folder = pathlib.Path(folder)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(num_hosts)]
    files = [folder / f"{index}.npz" for index in range(num_hosts)]
    config = json.dumps({**config, "folder": str(folder)})
    processes = [
        start(script, addresses, index, [str(file), config]) for index, file in enumerate(files)
    ]
    for process, output in zip(processes, outputs(processes, timeout), strict=True):
        assert process.returncode == 0, output[-3000:]
    return [dict(np.load(file, allow_pickle=False)) for file in files]

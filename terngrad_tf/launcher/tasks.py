"""The processes of a cluster: their jobs, names and variables."""

import dataclasses
import json
import shlex
import signal
from collections.abc import Mapping, Sequence

WORKER, SERVER = "worker", "ps"
# Names of the variables that tell a process its place; see `variables`.
PLACE = ("TF_CONFIG", "TERNGRAD_TF_JOB", "TERNGRAD_TF_TASK", "TERNGRAD_TF_LOCAL_RANK")


@dataclasses.dataclass(frozen=True)
class Task:
    """A process's place in `TF_CONFIG`: "worker", or "ps" for a parameter server, and a number."""

    job: str
    index: int

    def __str__(self) -> str:
        return f"{self.job} {self.index}"

    @property
    def label(self) -> str:
        """Short name for output: "0" of worker 0, "ps 0" of parameter server 0."""
        return str(self.index) if self.job == WORKER else str(self)


def tasks_of(count: int, num_servers: int) -> list[Task]:
    """Returns the tasks of `count` processes, the servers last."""
    num_workers = count - num_servers
    workers = [Task(WORKER, index) for index in range(num_workers)]
    return workers + [Task(SERVER, index) for index in range(num_servers)]


def variables(tasks: Sequence[Task], addresses: Sequence[str], rank: int) -> dict[str, str]:
    """Returns the environment variables that tell the process `rank` its place."""
    cluster: dict[str, list[str]] = {}
    for task, address in zip(tasks, addresses, strict=True):
        cluster.setdefault(task.job, []).append(address)
    own, host = tasks[rank], _host(addresses[rank])
    before = [i for i in range(rank) if tasks[i].job == own.job and _host(addresses[i]) == host]
    config = {"cluster": cluster, "task": {"type": own.job, "index": own.index}}
    values = json.dumps(config), own.job, str(own.index), str(len(before))
    found: dict[str, str] = dict(zip(PLACE, values, strict=True))
    # GPUs are the workers'.
    return found if own.job == WORKER else found | {"CUDA_VISIBLE_DEVICES": ""}


def end_of(task: Task, machine: str, status: int, last: str) -> tuple[int, str]:
    """Returns exit status and description of a failed process's end."""
    who = f"{task} on {machine}"
    if status < 0:
        return 128 - status, f"{who} was ended by signal {-status} ({signal.strsignal(-status)})"
    return status, f"{who} ended with status {status}{': ' + last if last else ''}"


def shell_line(
    task: Task, machine: str, folder: str, command: Sequence[str], environment: Mapping[str, str]
) -> str:
    """Returns a process's place and command, quoted for a shell."""
    values = [f"{name}={value}" for name, value in environment.items()]
    words = ["env", *values, *command]
    return f"{task} on {machine}: cd {shlex.quote(folder)} && {shlex.join(words)}"


def _host(address):
    return address.rpartition(":")[0]

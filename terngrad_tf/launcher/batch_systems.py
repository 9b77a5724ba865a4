"""A machine's place in a job, as batch systems report it."""

import dataclasses
import re
from collections.abc import Mapping

# Port range, indexed by the job's number.
_FIRST_PORT = 20000
_NUM_PORTS = 10000
_BRACKETS = re.compile(r"\[([0-9]+)[^\]]*\]")


@dataclasses.dataclass(frozen=True)
class Place:
    """A machine's place in a job.

    Attributes:
        num_nodes: number of machines, or of tasks if several run on one machine.
        node: number of this one, from 0.
        chief: host and port of number 0.
        name: name for the others; "" for the address from which it connects.
        offset: number of ports that other tasks on this machine use.
    """

    num_nodes: int
    node: int
    chief: tuple[str, int]
    name: str = ""
    offset: int = 0


def slurm_place(environment: Mapping[str, str]) -> Place | None:
    """Returns the place of a task of `srun`; None outside of `srun` and for a single task.

    Raises:
        ValueError: a variable is missing or invalid.
    """
    if "SLURM_PROCID" not in environment or _number(environment, "SLURM_NTASKS", "1") == 1:
        return None
    try:
        nodes = environment["SLURM_STEP_NODELIST"]
        port = _FIRST_PORT + _number(environment, "SLURM_JOB_ID") % _NUM_PORTS
        return Place(
            _number(environment, "SLURM_NTASKS"),
            _number(environment, "SLURM_PROCID"),
            (first_host(nodes), port),
            environment.get("SLURMD_NODENAME", ""),
            _number(environment, "SLURM_LOCALID", "0"),
        )
    except KeyError as error:
        raise ValueError(
            f"the environment of srun lacks {error.args[0]}: start terngrad run by srun, or give"
            " -np for processes of this machine alone"
        ) from None


def _number(environment, name, default=None):
    value = environment[name] if default is None else environment.get(name, default)
    if not (value.isascii() and value.isdecimal()):
        raise ValueError(
            f"the environment variable {name} must be a number of 0 or more. Received: {value!r}"
        )
    return int(value)


def first_host(nodes: str) -> str:
    """Returns the first host of a list in Slurm's format.

    Example:
        >>> first_host("gpu[01-04,07],login")
        'gpu01'
    """
    return _BRACKETS.sub(r"\1", nodes).split(",")[0]


def kubernetes_node(environment: Mapping[str, str], host_name: str) -> int | None:
    """Returns the number of an Indexed Job's or StatefulSet's pod; None outside of Kubernetes.

    Raises:
        ValueError: the number in the environment is invalid.
    """
    if "JOB_COMPLETION_INDEX" in environment:
        return _number(environment, "JOB_COMPLETION_INDEX")
    number = host_name.rpartition("-")[2]
    if "KUBERNETES_SERVICE_HOST" in environment and number.isdecimal():
        return int(number)
    return None

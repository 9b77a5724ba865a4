"""Runs whose hosts are killed, and what their logs say of their steps."""

import datetime
import pathlib
import re
import time

from benchmarks.chaos.run import Broken, Run

WORKERS = 3
BOUND_SECONDS = 300
# A step in progress may still end on the others after a kill. All modes need longer to continue;
# if one were quicker, it would count as this late.
IN_PROGRESS_SECONDS = 1
_LIGHTHOUSE_PORT = 29510
_STEP = re.compile(rb"^Worker \d+: (\S+ \S+): step (\d+),", re.MULTILINE)


class Torchft(Run):
    """Workers under torchft, and the lighthouse as a fourth task on another host.

    Args:
        network, disks: as for `Run`, for four hosts.
        python: interpreter that has torchft.
        data_dir: folder with images.npy and labels.npy.
    """

    def __init__(self, network, disks, python, data_dir):
        self._python, self._data_dir = python, data_dir
        super().__init__(network, disks, None, log_freq=1)

    def command(self, task):
        """Returns the command of a worker, or of the lighthouse."""
        *hosts, lighthouse = self.network.addresses(_LIGHTHOUSE_PORT)
        if task == WORKERS:
            # As in torchft's README.
            program = str(pathlib.Path(self._python).with_name("torchft_lighthouse"))
            options = {"quorum_tick_ms": 100, "join_timeout_ms": 10000, "min_replicas": WORKERS - 1}
            return [program, *(f"--{name}={value}" for name, value in options.items())]
        return [
            *(self._python, "-m", "benchmarks.recovery.torchft_worker", str(self._data_dir)),
            *(str(task), hosts[task].split(":")[0], self.network.interface(task)),
            f"http://{lighthouse}",
        ]


def steps(run, task, since=0.0):
    """Returns (time, number) of each step that a worker logged after a time, in order."""
    found = []
    for when, number in _STEP.findall(run.log(task).read_bytes()):
        seconds = datetime.datetime.fromisoformat(when.decode()).timestamp()
        if seconds > since:
            found.append((seconds, int(number)))
    return found


def await_common_step(run, tasks, since):
    """Returns when all these workers had logged the same step after `since`, or raises Broken."""
    while time.time() < since + BOUND_SECONDS:
        logged = [{number: when for when, number in steps(run, task, since)} for task in tasks]
        if common := set.intersection(*map(set, logged)):
            return min(max(when[number] for when in logged) for number in common)
        time.sleep(0.5)
    raise Broken(f"workers {tasks} took no step within {BOUND_SECONDS} s: {run.ends()}")


def lose(run, task, waits):
    """Kills a host and starts it again, at once or after the next step of the others.

    Args:
        run: the `Run`.
        task: the worker to kill.
        waits: whether its start waits for the next step of the others.

    Returns:
        {"others_seconds", "together_seconds", "repeated_steps"}: from the kill to the next step of
        the others, from the start to the next step of all, and the largest number of finished steps
        that a worker took once more.
    """
    everyone = list(range(WORKERS))
    others = [other for other in everyone if other != task]
    begin = {each: len(steps(run, each)) - 1 for each in everyone}
    killed = time.time()
    run.kill_host(task)
    gone = killed + IN_PROGRESS_SECONDS
    if waits:
        await_common_step(run, others, gone)
    started = time.time()
    run.start(task)
    together = await_common_step(run, everyone, max(started, gone))
    return {
        "others_seconds": await_common_step(run, others, gone) - killed,
        "together_seconds": together - started,
        "repeated_steps": max(repeated(steps(run, each)[begin[each] :]) for each in everyone),
    }


def repeated(logged):
    """Returns how many of the steps from `steps` a worker took again."""
    numbers = [number for _, number in logged]
    return sum(max(0, a + 1 - b) for a, b in zip(numbers, numbers[1:], strict=False))

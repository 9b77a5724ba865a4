"""Checks that a long run keeps its memory, files, threads and pace.

    python -m benchmarks.soak --folder=A --minutes=110
    python -m benchmarks.soak --folder=B --minutes=100 --kill_every=400 --seed=1 --equal_to=A

Trains LeNet on scikit-learn's digits with `mnist_distributed_train --max_restarts`, one worker on
each of two hosts of this machine (see `lib/netns.sh`: Linux, root, iproute2), for `--minutes` after
the first saved step: the run saves, has telemetry and snapshots, and `mnist_eval` runs beside it.
Every `--sample_seconds` a line of `samples.jsonl` in the folder records the resources of each
process. At the end a table compares the medians of a window after the start with those of the last
window. `--kill_every` is the interval in seconds at which the benchmark kills a worker drawn by the
seed. With `--equal_to`, all snapshots must equal the other run's, bit for bit.

The pace is the processor time per step, which depends little on other work of the machine. To keep
the load low, run the benchmark in a control group: all processes start from this one.
"""

import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time

import numpy as np
from absl import flags

from benchmarks.chaos.run import Broken, Run
from benchmarks.lib import cluster_hosts, markdown, program

_FOLDER = flags.DEFINE_string("folder", None, "Empty folder for all files of the run.")
_MINUTES = flags.DEFINE_float("minutes", 110, "Length of the run.", lower_bound=0.1)
_WINDOW = flags.DEFINE_float("window", 15, "Minutes of the first and the last window.")
_WARM_UP = flags.DEFINE_float("warm_up", 10, "Minutes before the first window.")
_KILL_EVERY = flags.DEFINE_float("kill_every", 0, "Seconds from one kill to the next; 0: none.")
_EQUAL_TO = flags.DEFINE_string("equal_to", None, "Folder of a run with the same snapshots.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the choice of killed workers.")
_SAMPLE_SECONDS = flags.DEFINE_float("sample_seconds", 30, "Seconds from one sample to the next.")
_SAVE_SECONDS = flags.DEFINE_integer("save_seconds", 60, "Seconds from one checkpoint to the next.")
_SNAPSHOT_STEPS = flags.DEFINE_integer(
    "snapshot_steps", 500, "Steps from one snapshot to the next."
)
_REPORT = flags.DEFINE_bool("report", False, "Prints only the tables of the folder's samples.")

NUM_HOSTS = 2
START_TIMEOUT = 1200
TELEMETRY_STEPS = 20
# An undisturbed and a disturbed run may run at the same time.
PREFIXES = {False: ("tgsa", "10.93.0"), True: ("tgsb", "10.94.0")}
STATUS_STOPPED = 75
# The system may drop resident memory of files; anonymous memory is the process's own.
KINDS = ("rss_mb", "anonymous_mb", "fds", "threads")


def sample(pid):
    """Returns a process's resources: `KINDS` and "cpu_seconds"; None if it has ended."""
    proc = pathlib.Path("/proc", str(pid))
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        fields = dict(
            line.split(":", 1) for line in (proc / "smaps_rollup").read_text().splitlines()[1:]
        )
        # After the name, which may hold blanks.
        stat = (proc / "stat").read_text().rpartition(")")[2].split()
        return {
            "rss_mb": int(fields["Rss"].split()[0]) / 1024,
            "anonymous_mb": int(fields["Anonymous"].split()[0]) / 1024,
            "fds": len(os.listdir(proc / "fd")),
            "threads": int(stat[17]),
            "cpu_seconds": (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"),
        }
    return None


def newest_step(train_dir):
    """Returns the last step of the telemetry, 0 if there is none."""
    with contextlib.suppress(FileNotFoundError), open(train_dir / "telemetry.jsonl", "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        # The last line may be incomplete.
        lines = file.read().decode().rpartition("\n")[0].splitlines()
        return json.loads(lines[-1])["step"] if lines else 0
    return 0


def _processes(run, evaluator):
    """Yields the name and ID of each running process."""
    yield "mnist_eval", evaluator.pid
    for task in range(NUM_HOSTS):
        supervisor, programs = run.programs(task)
        yield f"supervisor {task}", supervisor
        for pid in programs:
            yield f"worker {task}", pid


@contextlib.contextmanager
def _evaluation(folder, run):
    """Runs `mnist_eval` beside a run, in this context; yields its `subprocess.Popen`."""
    command = cluster_hosts.command(
        "terngrad_tf.bin.mnist_eval",
        checkpoint_dir=run.train_dir(0),
        data_dir=folder / "data",
        eval_dir=folder / "eval",
        eval_interval_secs=_SAVE_SECONDS.value,
    )
    with open(folder / "eval.log", "w") as log:
        process = subprocess.Popen(
            command,
            env=cluster_hosts.environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _watch(run, evaluator, samples, draw):
    """Samples and kills until the time is over; returns the number of kills."""
    end = time.monotonic() + 60 * _MINUTES.value
    next_kill = time.monotonic() + _KILL_EVERY.value
    num_kills = 0
    begin = time.monotonic()
    while time.monotonic() < end:
        for name, pid in _processes(run, evaluator):
            if found := sample(pid):
                minutes = (time.monotonic() - begin) / 60
                line = {"minutes": minutes, "step": newest_step(run.train_dir(0))}
                samples.write(json.dumps({**line, "name": name, "pid": pid, **found}) + "\n")
        samples.flush()
        if evaluator.poll() is not None:
            raise Broken(f"mnist_eval ended with status {evaluator.returncode}")
        for task in range(NUM_HOSTS):
            if (status := run.end_of(task, 0)) is not None:
                raise Broken(f"worker {task} ended with status {status}: {run.ends()}")
        if _KILL_EVERY.value and time.monotonic() >= next_kill:
            run.signal(draw.randrange(NUM_HOSTS), signal.SIGKILL)
            num_kills += 1
            next_kill += _KILL_EVERY.value
        time.sleep(_SAMPLE_SECONDS.value)
    return num_kills


def soak(folder):
    """Runs the programs, which leave samples, snapshots and logs in the folder."""
    import slim_data

    folder.mkdir(parents=True)
    slim_data.convert("digits", str(folder / "data"), shard=True, train_shards=NUM_HOSTS)
    network = cluster_hosts.Network(*PREFIXES[_KILL_EVERY.value > 0], NUM_HOSTS)
    with network.up("none"):
        run = Run(
            network,
            [folder] * NUM_HOSTS,
            10**8,
            data_dir=folder / "data",
            save_interval_secs=_SAVE_SECONDS.value,
            snapshot_every_steps=_SNAPSHOT_STEPS.value,
            telemetry_freq=TELEMETRY_STEPS,
            # A fixed rate keeps the weights changing.
            learning_rate_decay_type="fixed",
            initial_learning_rate=0.001,
            start_timeout=START_TIMEOUT,
        )
        try:
            with (
                _evaluation(folder, run) as evaluator,
                open(folder / "samples.jsonl", "w") as samples,
            ):
                # The time counts from the first saved step.
                run.wait_for(1, START_TIMEOUT)
                num_kills = _watch(run, evaluator, samples, random.Random(_SEED.value))
            for task in range(NUM_HOSTS):
                os.kill(run.programs(task)[0], signal.SIGTERM)
            ends = [run.end_of(task, 300) for task in range(NUM_HOSTS)]
            if _KILL_EVERY.value == 0 and ends != [STATUS_STOPPED] * NUM_HOSTS:
                raise Broken(f"after SIGTERM, workers ended with {ends}: {run.ends()}")
        finally:
            run.kill()
    (folder / "kills.json").write_text(json.dumps(num_kills))


def _rate(samples):
    """Returns ms of processor time per step by least squares; None if the process restarted."""
    steps = np.array([found["step"] for found in samples], np.float64)
    seconds = np.array([found["cpu_seconds"] for found in samples])
    if len({found["pid"] for found in samples}) > 1 or np.ptp(steps) == 0:
        return None
    return 1e3 * np.polyfit(steps, seconds, 1)[0]


def report(folder):
    """Prints the resources of each process in the first and the last window."""
    samples = [json.loads(line) for line in open(folder / "samples.jsonl")]
    last = samples[-1]["minutes"]
    windows = [(_WARM_UP.value, _WARM_UP.value + _WINDOW.value), (last - _WINDOW.value, last)]
    print(f"{last:.0f} minutes, {samples[-1]['step']} steps, ", end="")
    print(f"{json.loads((folder / 'kills.json').read_text())} kills")
    print(markdown.head("process | resource | first window | last window | growth"))
    for name in sorted({found["name"] for found in samples}):
        early, late = (
            [found for found in samples if found["name"] == name and a <= found["minutes"] <= b]
            for a, b in windows
        )
        for kind in (*KINDS, "cpu_ms_a_step"):
            if kind == "cpu_ms_a_step":
                figures = _rate(early), _rate(late)
            else:
                figures = [statistics.median(f[kind] for f in found) for found in (early, late)]
            if None not in figures:
                growth = f"{100 * (figures[1] / figures[0] - 1):+.2f} %" if figures[0] else "-"
                print(markdown.row([name, kind, *(f"{f:.4g}" for f in figures), growth]))


def compare(folder, other):
    """Compares the snapshots of two runs at all common steps; returns their number and the last.

    Raises:
        Broken: some snapshots differ.
    """
    from terngrad_tf.subspace.weights import snapshot_files

    found, expected = (
        {found.step: found for found in snapshot_files.open_snapshots(place / "run/checkpoint_pca")}
        for place in (folder, other)
    )

    def weights(snapshot):
        return [array.tobytes() for array in snapshot.read()]

    steps = sorted(found.keys() & expected.keys())
    different = [step for step in steps if weights(found[step]) != weights(expected[step])]
    if different or not steps:
        raise Broken(f"of {len(steps)} common snapshots these differ: {different}")
    return len(steps), steps[-1]


def main():
    """Runs and prints the table."""
    folder = pathlib.Path(_FOLDER.value)
    try:
        if not _REPORT.value:
            soak(folder)
        report(folder)
        if _EQUAL_TO.value:
            num, step = compare(folder, pathlib.Path(_EQUAL_TO.value))
            print(f"{num} snapshots up to step {step} are the same, bit for bit")
    except Broken as error:
        sys.exit(f"soak: {error}")


if __name__ == "__main__":
    flags.mark_flag_as_required("folder")
    program.run(main)

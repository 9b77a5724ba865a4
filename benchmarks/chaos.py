"""Whether runs survive what happens to hosts and links, at random moments.

    python -m benchmarks.chaos --hosts=3 --incidents=20
    python -m benchmarks.chaos --hosts=2 --incidents=20 --sync_every=8 --seed=1

Trains LeNet on scikit-learn's digits with `mnist_distributed_train --max_restarts`, one worker on
each host of this machine (see `benchmarks/netns.sh`: Linux, root, iproute2), saving each step.
Meanwhile incidents happen, drawn from a seed: `EVENTS`, a third of them in pairs, the second while
the first is being dealt with. After each the run must go on from what is saved, within a bound; all
that is saved must be whole; and no worker may run twice. In the end all workers must end well, with
the weights of a run that nobody disturbed, bit for bit. Anything else is an error.
"""

import collections
import contextlib
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from benchmarks import cluster_hosts, figures
from benchmarks.chaos_run import BOUND_SECONDS, Broken, Run

_HOSTS = flags.DEFINE_integer("hosts", 2, "Number of hosts.", lower_bound=2)
_INCIDENTS = flags.DEFINE_integer("incidents", 20, "Number of incidents.", lower_bound=1)
_EVENTS = flags.DEFINE_list("events", None, "What may happen. Default: all that is known.")
_SYNC_EVERY = flags.DEFINE_integer("sync_every", 0, "Local steps to an exchange. 0: none.")
_SEED = flags.DEFINE_integer("seed", 0, "Of what happens when.")
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")

PREFIX = "tgx"
SUBNET = "10.87.0"
# At most so many are taken before an incident, and before the second of a pair.
PAUSE_STEPS = 15
# For each incident: those, and what is taken while it is looked at.
STEPS = 4 * PAUSE_STEPS
DISK_MB = 64
STATUS_DISK = 4
# Seconds, shorter and longer than workers wait for each other.
BRIEF = 1, 8
LONG = 75, 80


def _kill(run, task, draw):
    """The program is killed."""
    del draw
    run.signal(task, signal.SIGKILL)


def _terminate(run, task, draw):
    """The program is told to stop, by SIGTERM."""
    del draw
    run.signal(task, signal.SIGTERM)


def _lose_host(run, task, draw):
    """All on a host is killed, and started again by hand some seconds later."""
    run.kill_host(task)
    time.sleep(draw.uniform(*BRIEF))
    run.start(task)


def _stop_for(seconds):
    def stop(run, task, draw):
        programs = run.programs(task)[1]
        run.signal(task, signal.SIGSTOP)
        time.sleep(draw.uniform(*seconds))
        for pid in programs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return stop


def _cut_for(seconds):
    def cut(run, task, draw):
        run.network.cut(task)
        try:
            time.sleep(draw.uniform(*seconds))
        finally:
            run.network.join(task)

    return cut


def _fill_disk(run, task, draw):
    """The disk of the run and its logs is full until the chief ends; who did is started by hand."""
    del task, draw
    filler = run.folder / "filler"
    with contextlib.suppress(OSError), open(filler, "wb") as file:
        while True:
            file.write(bytes(1 << 16))
    run.end_of(0, BOUND_SECONDS)
    filler.unlink()
    # Others may have met it, too.
    time.sleep(BRIEF[1])
    for other in range(_HOSTS.value):
        if (status := run.end_of(other, 0)) == STATUS_DISK:
            run.start(other)
        elif status is not None:
            raise Broken(f"worker {other} ended with status {status} on a full disk")


EVENTS = {
    "killed": _kill,
    "told_to_stop": _terminate,
    "host_lost": _lose_host,
    "stopped_briefly": _stop_for(BRIEF),
    "stopped_long": _stop_for(LONG),
    "cut_briefly": _cut_for(BRIEF),
    "cut_long": _cut_for(LONG),
    "disk_full": _fill_disk,
}


def _disturb(run, draw):
    """Lets incidents happen: list of (names of events, seconds to the next saved step)."""
    happened = []
    run.go_on(1)
    names = _EVENTS.value or list(EVENTS)
    while len(happened) < _INCIDENTS.value:
        run.go_on(draw.randint(1, PAUSE_STEPS))
        if run.is_over():
            raise Broken(f"the run ended after {len(happened)} incidents: {run.ends()}")
        incident = []
        for _ in range(1 + (draw.random() < 1 / 3)):
            if incident:
                run.wait_for(run.step() + PAUSE_STEPS, draw.uniform(0, 20))
            name, task = draw.choice(names), draw.randrange(_HOSTS.value)
            EVENTS[name](run, task, draw)
            incident.append(name)
        seconds = run.go_on(1)
        run.check()
        happened.append((incident, seconds))
        print(f"{len(happened)}. {', '.join(incident)}: went on after {seconds:.1f} s", flush=True)
    return happened


@contextlib.contextmanager
def _disk(folder):
    """A file system of `DISK_MB` MB at a path, in this context."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def _run(network, folder):
    """A run on a disk of its own, in this context."""
    with _disk(folder) as disk:
        max_steps = _INCIDENTS.value * STEPS
        data_dir = folder.with_name("data")
        run = Run(network, disk, max_steps, data_dir=data_dir, sync_every=_SYNC_EVERY.value)
        try:
            yield run
        finally:
            run.kill()


def chaos():
    """Disturbs a run; returns its incidents.

    Raises:
        Broken: it did not survive.
    """
    import slim_data

    network = cluster_hosts.Network(PREFIX, SUBNET, _HOSTS.value)
    with tempfile.TemporaryDirectory() as name, network.up("none"):
        folder = pathlib.Path(name)
        slim_data.convert("digits", str(folder / "data"), shard=True, train_shards=_HOSTS.value)
        with _run(network, folder / "undisturbed") as run:
            run.finish()
            expected = run.saved()
        with _run(network, folder / "disturbed") as run:
            happened = _disturb(run, random.Random(_SEED.value))
            run.finish()
            found = run.saved()
    different = expected.keys() ^ found.keys()
    different |= {key for key in expected if bytes(found[key]) != bytes(expected[key])}
    if different:
        raise Broken(f"not saved as undisturbed: {sorted(different)}")
    return happened


def main(argv):
    """Disturbs a run, and prints a table of what happened."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if unknown := set(_EVENTS.value or ()) - set(EVENTS):
        raise app.UsageError(f"--events must be of {list(EVENTS)}. Received: {sorted(unknown)}")
    try:
        happened = chaos()
    except Broken as error:
        sys.exit(f"chaos: {error}")
    seconds_of = collections.defaultdict(list)
    for incident, seconds in happened:
        seconds_of[incident[0] if len(incident) == 1 else "two at once"].append(seconds)
    print("| incident | how often | seconds to the next saved step: median | longest |")
    print("|---|---|---|---|")
    for name in (*EVENTS, "two at once"):
        if seconds := seconds_of[name]:
            median, longest = statistics.median(seconds), max(seconds)
            print(f"| {name} | {len(seconds)} | {median:.1f} | {longest:.1f} |")
    if _JSON.value:
        settings = {"hosts": _HOSTS.value, "sync_every": _SYNC_EVERY.value, "seed": _SEED.value}
        figures.write_json(_JSON.value, {**settings, "incidents": happened})
    return 0


if __name__ == "__main__":
    app.run(main)

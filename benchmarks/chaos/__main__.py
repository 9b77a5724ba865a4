"""Checks that runs survive incidents of hosts and links at random moments.

    python -m benchmarks.chaos --hosts=3 --incidents=20
    python -m benchmarks.chaos --hosts=2 --incidents=20 --sync_every=8 --seed=1
    python -m benchmarks.chaos --hosts=4 --incidents=20 --min_workers=1

Trains LeNet on scikit-learn's digits with `mnist_distributed_train --max_restarts`, one worker per
host of this machine (see `lib/netns.sh`: Linux, root, iproute2), and saves each step. Meanwhile
incidents from `chaos.events` happen, drawn from a seed; a third come in pairs, the second during
recovery from the first. After each incident the run must continue from its saved state within a
bound, all saved files must be whole, and no worker may run twice. At the end all workers must
succeed, with the weights of an undisturbed run, bit for bit.

With --min_workers, workers leave and join, and `chaos.members` adds incidents: hosts stay away, the
chief loses its disk, the network splits in halves. The workers that may continue must do so within
the bound, the others must not. After each incident all workers must train together again within the
bound, and two parts may never train at the same time. At the end the chief is lost for good. The
saved weights must then load, be the same on all workers that keep them, and be as accurate as
undisturbed runs of other seeds. Anything else is an error.

benchmarks/results/chaos.json holds the figures of a run of `--hosts=3 --min_workers=1`.
"""

import contextlib
import pathlib
import random
import subprocess
import sys
import tempfile

from absl import app, flags

from benchmarks.chaos import accuracy as chaos_accuracy
from benchmarks.chaos import events as chaos_events
from benchmarks.chaos import members, picture, tables
from benchmarks.chaos.run import Broken, Run
from benchmarks.lib import cluster_hosts, figures, program

_HOSTS = flags.DEFINE_integer("hosts", 2, "Number of hosts.", lower_bound=2)
_INCIDENTS = flags.DEFINE_integer("incidents", 20, "Number of incidents.", lower_bound=1)
_EVENTS = flags.DEFINE_list("events", None, "Possible incidents. Default: all known ones.")
_SYNC_EVERY = flags.DEFINE_integer("sync_every", 0, "Local steps per exchange. 0: no local steps.")
_MIN_WORKERS = flags.DEFINE_integer("min_workers", 0, "Lets workers leave and join. 0: they stay.")
_RUNS = flags.DEFINE_integer(
    "runs", 3, "Undisturbed runs with --min_workers. 0: accuracy is not checked."
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the incidents and their times.")
_JSON = flags.DEFINE_string("json", None, "File of the figures: read if it exists, else written.")
_IMAGES = flags.DEFINE_string("images", None, "Folder to draw incidents_*.svg in.")

PREFIX = "tgx"
SUBNET = "10.87.0"
# Most steps before an incident, and within a pair.
PAUSE_STEPS = 15
# Per incident, with its checks.
STEPS = 4 * PAUSE_STEPS
# After the last incident, with --min_workers.
LAST_STEPS = 30
ENDLESS_STEPS = 10**6
# Holds several checkpoints with the local steps of all workers.
DISK_MB = 256
JOIN_SECONDS = 5
# For workers that may not continue.
MEMBERS_START_TIMEOUT = 60


def _events():
    return members.EVENTS if _MIN_WORKERS.value else chaos_events.EVENTS


def _draw_incident(draw, names):
    """Draws names of events; those in `members.ALONE` have no second one."""
    incident = [draw.choice(names)]
    seconds = [name for name in names if name not in members.ALONE]
    if draw.random() < 1 / 3 and incident[0] in seconds:
        incident.append(draw.choice(seconds))
    return incident


def _disturb(run, draw):
    """Causes incidents; returns a list of (events, seconds to the next saved step, seconds).

    The first are None if no worker may continue before the lost one is back; the second, until all
    train together again, None without `--min_workers`.
    """
    happened = []
    run.go_on(1)
    events = _events()
    names = _EVENTS.value or list(events)
    while len(happened) < _INCIDENTS.value:
        if _MIN_WORKERS.value:
            run.await_members(run.hosts)
        run.go_on(draw.randint(1, PAUSE_STEPS))
        if run.is_over():
            raise Broken(f"the run ended after {len(happened)} incidents: {run.ends()}")
        incident = _draw_incident(draw, names)
        for number, name in enumerate(incident):
            if number:
                run.wait_for(run.step() + PAUSE_STEPS, draw.uniform(0, 20))
            seconds = events[name](run, draw.randrange(_HOSTS.value), draw)
        if incident[0] not in members.ALONE or not _MIN_WORKERS.value:
            seconds = run.go_on(1)
        together = run.await_members(run.hosts) if _MIN_WORKERS.value else None
        run.check()
        happened.append((incident, seconds, together))
        line = [f"{len(happened)}. {', '.join(incident)}:"]
        line.append("none continued" if seconds is None else f"continued after {seconds:.1f} s")
        line += [] if together is None else [f"all together {together:.1f} s later"]
        print(*line, flush=True)
    return happened


@contextlib.contextmanager
def _disk(folder):
    """Mounts a file system of `DISK_MB` MB in this context."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def _run(network, folder):
    """Starts a run, in this context."""
    options = {"data_dir": folder.with_name("data"), "sync_every": _SYNC_EVERY.value}
    with contextlib.ExitStack() as stack:
        if _MIN_WORKERS.value:
            folders = [folder / str(task) for task in range(_HOSTS.value)]
            disks = [stack.enter_context(_disk(one)) for one in folders]
            options |= {
                "min_workers": _MIN_WORKERS.value,
                # So that every part that may continue has the saved state.
                "replicate_checkpoints": max(1, (_HOSTS.value + 1) // 2 - 1),
                "join_timeout": JOIN_SECONDS,
                "start_timeout": MEMBERS_START_TIMEOUT,
            }
            run = members.MembersRun(network, disks, ENDLESS_STEPS, **options)
        else:
            disks = [stack.enter_context(_disk(folder))] * _HOSTS.value
            run = Run(network, disks, _INCIDENTS.value * STEPS, **options)
        try:
            yield run
        finally:
            run.kill()


def chaos():
    """Disturbs a run; returns its incidents and, with `--min_workers`, its final state."""
    import slim_data

    network = cluster_hosts.Network(PREFIX, SUBNET, _HOSTS.value)
    with tempfile.TemporaryDirectory() as name, network.up("none"):
        folder = pathlib.Path(name)
        slim_data.convert("digits", str(folder / "data"), shard=True, train_shards=_HOSTS.value)
        if _MIN_WORKERS.value:
            return _come_and_go(network, folder)
        with _run(network, folder / "undisturbed") as run:
            run.finish()
            expected = run.saved()
        with _run(network, folder / "disturbed") as run:
            happened = _disturb(run, random.Random(_SEED.value))
            run.finish()
            found = run.saved()
    if different := _different(expected, found):
        raise Broken(f"saved arrays differ from the undisturbed run: {different}")
    return happened, {}


def _come_and_go(network, folder):
    with _run(network, folder / "disturbed") as run:
        happened = _disturb(run, random.Random(_SEED.value))
        # The second of two workers would wait for the first.
        seconds = members.lose_chief(run) if _HOSTS.value > 2 else None
        end = {"steps": members.go_on_to(run, LAST_STEPS), "chief_lost": seconds}
        for task in run.keepers:
            if different := _different(run.saved(), run.saved(task)):
                raise Broken(f"worker {task} keeps other arrays than the chief: {different}")
        if _RUNS.value:
            accuracy = chaos_accuracy.Undisturbed(folder, _HOSTS.value, _SYNC_EVERY.value)
            end["accuracy"] = accuracy.of(run.train_dir(run.chief))
            print(f"accuracy {end['accuracy']:.4f} after {end['steps']} steps", flush=True)
            end["undisturbed"] = [accuracy.train(1 + n, end["steps"]) for n in range(_RUNS.value)]
            chaos_accuracy.check(end["accuracy"], end["undisturbed"])
    return happened, end


def _different(expected, found):
    """Returns the names of the arrays that differ in any bit."""
    different = expected.keys() ^ found.keys()
    same = expected.keys() & found.keys()
    return sorted(different | {key for key in same if bytes(found[key]) != bytes(expected[key])})


def main():
    """Disturbs a run and prints a table of the incidents."""
    if unknown := set(_EVENTS.value or ()) - set(_events()):
        raise app.UsageError(f"--events must be in {list(_events())}. Received: {sorted(unknown)}")
    settings = {"hosts": _HOSTS.value, "sync_every": _SYNC_EVERY.value, "seed": _SEED.value}
    settings |= {"min_workers": _MIN_WORKERS.value, "incidents": _INCIDENTS.value}
    settings["events"] = _EVENTS.value
    rows = figures.Finished(_JSON.value, settings, "rows")
    if not rows:
        try:
            happened, end = chaos()
        except Broken as error:
            sys.exit(f"chaos: {error}")
        print(end)
        rows.add(*tables.summary(happened), end=end, incidents=happened)
    print(tables.incidents(rows))
    if _IMAGES.value:
        picture.write(rows, _IMAGES.value)


if __name__ == "__main__":
    program.run(main)

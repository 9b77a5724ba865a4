"""Whether runs survive what happens to hosts and links, at random moments.

    python -m benchmarks.chaos --hosts=3 --incidents=20
    python -m benchmarks.chaos --hosts=2 --incidents=20 --sync_every=8 --seed=1
    python -m benchmarks.chaos --hosts=4 --incidents=20 --min_workers=1

Trains LeNet on scikit-learn's digits with `mnist_distributed_train --max_restarts`, one worker on
each host of this machine (see `lib/netns.sh`: Linux, root, iproute2), saving each step.
Meanwhile incidents happen, drawn from a seed: those of `chaos_events`, a third of them in pairs,
the second while the first is being dealt with. After each the run must go on from what is saved,
within a bound; all that is saved must be whole; and no worker may run twice. In the end all workers
must end well, with the weights of a run that nobody disturbed, bit for bit.

With --min_workers, workers come and go, and more happens, see `chaos_members`: hosts stay away, the
chief's disk is lost, the network is split in halves. Those that may go on must do so within the
bound, the others must not; after each incident all must train together again within the bound; and
never may two parts train at a time. At last the chief is lost for good. What is saved then must
load, be the same on all that keep it, and be as accurate as runs of other seeds that nobody
disturbed. Anything else is an error.
"""

import collections
import contextlib
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from absl import app, flags

from benchmarks.chaos import accuracy as chaos_accuracy
from benchmarks.chaos import events as chaos_events
from benchmarks.chaos import members
from benchmarks.chaos.run import Broken, Run
from benchmarks.lib import cluster_hosts, figures

_HOSTS = flags.DEFINE_integer("hosts", 2, "Number of hosts.", lower_bound=2)
_INCIDENTS = flags.DEFINE_integer("incidents", 20, "Number of incidents.", lower_bound=1)
_EVENTS = flags.DEFINE_list("events", None, "What may happen. Default: all that is known.")
_SYNC_EVERY = flags.DEFINE_integer("sync_every", 0, "Local steps to an exchange. 0: none.")
_MIN_WORKERS = flags.DEFINE_integer("min_workers", 0, "Where workers come and go. 0: they do not.")
_RUNS = flags.DEFINE_integer(
    "runs", 3, "With --min_workers, runs that nobody disturbs. 0: accuracy is not looked at."
)
_SEED = flags.DEFINE_integer("seed", 0, "Of what happens when.")
_JSON = flags.DEFINE_string("json", None, "File that receives the figures.")

PREFIX = "tgx"
SUBNET = "10.87.0"
# At most so many are taken before an incident, and before the second of a pair.
PAUSE_STEPS = 15
# For each incident: those, and what is taken while it is looked at.
STEPS = 4 * PAUSE_STEPS
# With --min_workers the run ends so many steps after the last incident, whenever that is.
LAST_STEPS = 30
ENDLESS_STEPS = 10**6
# Room for several checkpoints that hold the local steps of all workers.
DISK_MB = 256
JOIN_SECONDS = 5
# Those that may not go on end after so long.
MEMBERS_START_TIMEOUT = 60


def _events():
    return members.EVENTS if _MIN_WORKERS.value else chaos_events.EVENTS


def _draw_incident(draw, names):
    """Names of events; those for which the others go on alone have no second one."""
    incident = [draw.choice(names)]
    seconds = [name for name in names if name not in members.ALONE]
    if draw.random() < 1 / 3 and incident[0] in seconds:
        incident.append(draw.choice(seconds))
    return incident


def _disturb(run, draw):
    """Lets incidents happen: list of (names of events, seconds to the next saved step, seconds).

    The former are None where nobody may go on before the worker is back. The latter, until all
    train together again, are None but for members.
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
        told = [f"{len(happened)}. {', '.join(incident)}:"]
        told.append("none went on" if seconds is None else f"went on after {seconds:.1f} s")
        told += [] if together is None else [f"all together {together:.1f} s later"]
        print(*told, flush=True)
    return happened


@contextlib.contextmanager
def _disk(folder):
    """A file system of `DISK_MB` MB at a path, in this context."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def _run(network, folder):
    """A run, in this context; all its workers share a disk, or each has its own."""
    options = {"data_dir": folder.with_name("data"), "sync_every": _SYNC_EVERY.value}
    with contextlib.ExitStack() as stack:
        if _MIN_WORKERS.value:
            folders = [folder / str(task) for task in range(_HOSTS.value)]
            disks = [stack.enter_context(_disk(one)) for one in folders]
            options |= {
                "min_workers": _MIN_WORKERS.value,
                # Whichever part may go on has what was saved.
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
    """Disturbs a run; returns its incidents and, where workers come and go, its end.

    Raises:
        Broken: it did not survive.
    """
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
        raise Broken(f"not saved as undisturbed: {different}")
    return happened, {}


def _come_and_go(network, folder):
    with _run(network, folder / "disturbed") as run:
        happened = _disturb(run, random.Random(_SEED.value))
        # The other of two workers would have to wait for it.
        seconds = members.lose_chief(run) if _HOSTS.value > 2 else None
        end = {"steps": members.go_on_to(run, LAST_STEPS), "chief_lost": seconds}
        for task in run.keepers:
            if different := _different(run.saved(), run.saved(task)):
                raise Broken(f"worker {task} keeps others than the chief: {different}")
        if _RUNS.value:
            accuracy = chaos_accuracy.Undisturbed(folder, _HOSTS.value, _SYNC_EVERY.value)
            end["accuracy"] = accuracy.of(run.train_dir(run.chief))
            print(f"accuracy {end['accuracy']:.4f} after {end['steps']} steps", flush=True)
            end["undisturbed"] = [accuracy.train(1 + n, end["steps"]) for n in range(_RUNS.value)]
            chaos_accuracy.check(end["accuracy"], end["undisturbed"])
    return happened, end


def _different(expected, found):
    """Names of the arrays that are not the same, bit for bit."""
    different = expected.keys() ^ found.keys()
    same = expected.keys() & found.keys()
    return sorted(different | {key for key in same if bytes(found[key]) != bytes(expected[key])})


def _print_table(happened):
    seconds_of, together_of = collections.defaultdict(list), collections.defaultdict(list)
    for incident, seconds, together in happened:
        name = incident[0] if len(incident) == 1 else "two at once"
        seconds_of[name].append(seconds)
        together_of[name].append(together)
    columns = "| incident | how often | seconds to the next saved step: median | longest |"
    print(columns + (" all together again: median | longest |" if _MIN_WORKERS.value else ""))
    print("|---|---|---|---|" + ("---|---|" if _MIN_WORKERS.value else ""))
    for name in (*_events(), "two at once"):
        if found := seconds_of[name]:
            cells = [name, len(found), *_median_and_longest(found)]
            cells += _median_and_longest(together_of[name]) if _MIN_WORKERS.value else []
            print(f"| {' | '.join(map(str, cells))} |")


def _median_and_longest(seconds):
    known = [value for value in seconds if value is not None]
    return [f"{statistics.median(known):.1f}", f"{max(known):.1f}"] if known else ["-", "-"]


def main(argv):
    """Disturbs a run, and prints a table of what happened."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if unknown := set(_EVENTS.value or ()) - set(_events()):
        raise app.UsageError(f"--events must be of {list(_events())}. Received: {sorted(unknown)}")
    try:
        happened, end = chaos()
    except Broken as error:
        sys.exit(f"chaos: {error}")
    _print_table(happened)
    settings = {"hosts": _HOSTS.value, "sync_every": _SYNC_EVERY.value, "seed": _SEED.value}
    if end:
        settings |= {"min_workers": _MIN_WORKERS.value, "end": end}
        print(end)
    if _JSON.value:
        figures.write_json(_JSON.value, {**settings, "incidents": happened})
    return 0


if __name__ == "__main__":
    app.run(main)

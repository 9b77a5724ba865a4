"""Elastic clusters: the workers that are present agree to train together.

Workers greet each other before TensorFlow listens at their ports. From the generations and saved
states that they send, `membership` derives who is needed and who is the next chief. The chief
proposes the next members, and each agrees by writing the generation to a file.
"""

import contextlib
import dataclasses
import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.common import preemption, tokens
from terngrad_tf.common.arguments import check_integer
from terngrad_tf.distribute.cluster import greetings, membership, rendezvous
from terngrad_tf.distribute.cluster.introductions import Introduction, Proposal, decode
from terngrad_tf.distribute.cluster.membership import Generation, MembersFile, SavedState
from terngrad_tf.distribute.cluster.refusals import Refusals
from terngrad_tf.distribute.cluster.resolvers import cluster_of
from terngrad_tf.distribute.communication import peers
from terngrad_tf.distribute.communication.peers import PeerError, Tasks
from terngrad_tf.launcher.supervisor import is_restart

JOIN_SECONDS = 10.0
# Restarts, which load nothing, meet sooner.
_REJOIN_SECONDS = 5.0
_POLL_SECONDS = 0.3
_WATCH_SECONDS = 3.0
_FIRST_REPORT_SECONDS = 10.0
_REPORT_SECONDS = 60.0
# Time for members to greet each other before they try again.
_SETTLE_SECONDS = 30.0
_AGREE_SECONDS = 15.0
# A misconfigured worker stays this long, so that the others see why.
_WRONG_SECONDS = 10.0
_MOST_TOLD = 2
_DIFFERENT = "was started differently: all workers need the same list of workers and equal options"

_logger = logging.getLogger(__name__)


class NewcomersError(RuntimeError):
    """Training was saved and stopped, to resume with the workers that wait.

    Args:
        newcomers: the workers that wait.
        step: the last step.
        saved: the newest step that is saved, 0 for none. Default: the last step.
    """

    def __init__(self, newcomers: str, step: int, saved: int | None = None):
        super().__init__(f"{preemption.stopped(step, saved)}, to resume with {newcomers}")


class Membership:
    """A worker's place in a generation of a cluster, as `join_cluster` returns it.

    Attributes:
        cluster_resolver: `tf.distribute.cluster_resolver.ClusterResolver` of the members, for
            `TernGradStrategy`: workers 0, 1, 2, ..., the chief first.
        members: their indices in the whole cluster's list of workers, in the same order.
        number: number of the generation, from 1.
        saves: True if this worker keeps the run's files: the chief and workers with copies.
        num_copies: wanted number of workers with copies.
        folder: path of the folder with this worker's checkpoints.
    """

    def __init__(
        self, tasks: Tasks, file: MembersFile, key: str, options: str, token: str | None
    ) -> None:
        self._tasks, self._file, self._token = tasks, file, token
        self._key, self._options = key, options
        self._run = secrets.token_hex(8)
        generation = file.generation
        self.members, self.number = generation.members, generation.number
        addresses = [tasks.addresses[index] for index in self.members]
        place = self.members.index(tasks.index)
        self.cluster_resolver = cluster_of(addresses, place)
        self.num_copies = generation.num_copies
        self.folder = file.folder
        self.saves = place <= generation.num_copies

    @property
    def num_workers(self) -> int:
        """Workers of the whole cluster."""
        return len(self._tasks.names)

    def saved(self, step: int) -> None:
        """Records a save. Workers that `saves` call it after each save.

        Args:
            step: number of steps done.

        Raises:
            OSError: the record cannot be written.
        """
        self._file.saved(step)

    def waiting(self) -> list[str]:
        """Looks for 2 s for waiting workers, such as "worker 2 (10.0.0.4:2222)"."""
        absent = set(range(self.num_workers)) - set(self.members)
        # A worker that was started differently learns so from the digest.
        index, generation = self._tasks.index, self._file.generation
        own = Introduction(self._options, index, self._run, generation, None).encode()
        answers = peers.of_others(
            self._tasks,
            absent,
            lambda index: greetings.greet(self._tasks.addresses[index], own, self._token),
        )
        return [
            self._tasks.describe(index)
            for index, (name, _) in sorted(answers.items())
            if (other := decode(name)) is not None
            and (other.cluster, other.options) == (self._key, self._options)
        ]

    @contextlib.contextmanager
    def watch(self) -> Iterator[Callable[[], str]]:
        """Looks for waiting workers every few seconds, in a thread.

        Only the chief looks, if workers are missing.

        Yields:
            Function without arguments that returns their names, such as "worker 2 (10.0.0.4:2222)",
            or "".
        """
        found: list[str] = []
        if self.cluster_resolver.task_id or len(self.members) == self.num_workers:
            yield lambda: ""
            return
        is_over = threading.Event()

        def look():
            while not is_over.wait(_WATCH_SECONDS):
                found[:] = self.waiting()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield lambda: ", ".join(found)
        finally:
            is_over.set()
            thread.join()

    def describe(self) -> str:
        """Describes the members, such as "workers 0 and 2 of 3 train, as workers 0 and 1"."""
        if len(self.members) == 1:
            return f"worker {self.members[0]} of {self.num_workers} trains alone, as worker 0"
        places = membership.members_told(range(len(self.members)))
        members = membership.members_told(self.members)
        return f"workers {members} of {self.num_workers} train, as workers {places}"


def join_cluster(
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
    folder: str | os.PathLike,
    newest_step: Callable[[], int | None],
    *,
    min_workers: int = 1,
    num_copies: int = 0,
    join_timeout: float = JOIN_SECONDS,
    start_timeout: float = 600,
    token: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Membership:
    """Agrees with the other workers of a cluster which of them train, and waits for these.

    The present workers train if they are more than half of the last members (or half, including the
    last chief), at least `min_workers`, and have the latest checkpoint. A worker that arrives later
    waits until the members admit it.

    Args:
        cluster_resolver: describes all workers that may ever take part.
        folder: path of the folder with this worker's checkpoints and its record of the cluster;
            created if missing.
        newest_step: function without arguments that returns the newest step saved there, or None.
        min_workers: fewest workers to train with. Default 1.
        num_copies: number of workers besides the chief that keep copies. Default 0.
        join_timeout: seconds to wait for more workers when there are enough; at most 5 after a
            restart by `run_supervised`. Default 10.
        start_timeout: seconds to wait for enough workers while none train. Default 600.
        token: as for `TernGradStrategy`.
        options: dict of what all workers must share, such as a program's flags. A worker that comes
            with others is not admitted, so that it cannot end the training of the rest. Default:
            nothing. Workers that begin together name differences by `compare_processes`.

    Returns:
        A `Membership`. Create the strategy next: a worker without one after 2 minutes is lost.

    Raises:
        ValueError: an argument is out of range, or the record in the folder is damaged.
        PeerError: there are too few workers, or they were started differently.
        OSError: the folder cannot be written to.
    """
    tasks = peers.tasks_of(cluster_resolver)
    num_workers = len(tasks.names)
    check_integer("min_workers", min_workers, 1)
    check_integer("num_copies", num_copies, 0)
    if min_workers > num_workers:
        raise ValueError(
            f"`min_workers` must be at most the number of workers, {num_workers}. "
            f"Received: min_workers={min_workers}"
        )
    if token is None:
        token = tokens.token_from_environment()
    else:
        tokens.checked(token, "`token`")
    file = MembersFile(folder, tasks.index, tasks.addresses)
    state = file.state(newest_step())
    if is_restart():
        join_timeout = min(join_timeout, _REJOIN_SECONDS)
    key = _digest([*tasks.addresses, min_workers, num_copies])
    digest = _digest([key, *sorted((options or {}).items())])
    meeting = _Meeting(
        tasks, file, state, key, digest, token, min_workers, num_copies, join_timeout, start_timeout
    )
    while True:
        meeting.agree()
        joined = Membership(tasks, file, key, digest, token)
        try:
            members = peers.tasks_of(joined.cluster_resolver)
            rendezvous.wait_for_peers(members, _SETTLE_SECONDS, token, same_lists=True)
            file.begin()
            return joined
        except PeerError as error:
            _logger.warning("%s; the workers start to agree anew", error)


def _digest(values):
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class _Present:
    """Knowledge of the workers that are present, this one included.

    Attributes:
        states: saved state of each worker, by index.
        deciding: generations of which enough workers must be present, the latest last.
    """

    states: Mapping[int, SavedState | None]
    deciding: Sequence[Generation]

    def lacking(self) -> Generation | None:
        """Returns a generation of which too few workers are present, or None."""
        return next((one for one in self.deciding if not one.may_continue(self.states)), None)

    def order(self) -> tuple[int, ...] | None:
        """Returns the next members, the chief first; None if these workers may not train."""
        return None if self.lacking() else self.deciding[-1].order(self.states)


@dataclasses.dataclass
class _Meeting:
    """Workers that exchange introductions until they agree."""

    tasks: Tasks
    file: MembersFile
    state: SavedState | None
    key: str
    options: str
    token: str | None
    min_workers: int
    num_copies: int
    join_timeout: float
    start_timeout: float

    def __post_init__(self):
        self._run = secrets.token_hex(8)
        self._proposal = self._enough_since = self._wrong_since = None
        # Why workers were started differently, by index.
        self._wrong: dict[int, str] = {}
        self._refusals = Refusals(self.tasks, self.token)
        self._settle_until = 0.0
        self._deadline = time.monotonic() + self.start_timeout
        self._next_report = time.monotonic() + _FIRST_REPORT_SECONDS

    def agree(self):
        """Returns when `file` holds a generation with this process; PeerError if too late."""
        self._proposal = self._enough_since = None
        with rendezvous.answering(self.tasks, self._introduction, self.token) as heard:
            while not self._look(heard):
                time.sleep(_POLL_SECONDS)

    def _introduction(self):
        generation, own = self.file.generation, self.tasks.index
        begun = None if self.file.begun == generation else self.file.begun
        described = generation, self.state, self._proposal, self.options, begun
        return Introduction(self.key, own, self._run, *described).encode()

    def _look(self, heard):
        """Greets all workers and takes the next step to agree; True if they agree."""
        own = self._introduction()
        answers = peers.of_others(
            self.tasks, None, lambda i: greetings.greet(self.tasks.addresses[i], own, self.token)
        )
        told = {i: found for i, (name, _) in answers.items() if (found := decode(name))}
        self._find_wrong(answers, told, heard)
        told = {i: other for i, other in told.items() if i not in self._wrong}
        if self._proposal is not None:
            return self._all_agreed(answers, told)
        # Workers that reach this one, too.
        met = {(who.worker, who.run) for who in _introduced(heard.names())}
        there = {i: other for i, other in told.items() if (other.worker, other.run) in met}
        if self._agrees(there):
            return True
        if self._wrong:
            return False  # until the worker is restarted, or time is over
        present = self._present(there)
        if self._is_own_turn(present, coming=told.keys() - there.keys()):
            self._propose(present, there)
        else:
            self._wait(present, answers)
        return False

    def _agrees(self, there):
        """Agrees to another worker's proposal; False if there is none."""
        for other in there.values():
            proposal = other.proposal
            if proposal is None or proposal.runs.get(self.tasks.index) != self._run:
                continue
            if proposal.generation.number > self.file.generation.number:
                self.file.agree(proposal.generation, other.begun)
                return True
        return False

    def _present(self, there):
        states = {index: other.state for index, other in there.items()}
        states[self.tasks.index] = self.state
        begun = [self.file.begun, *(one.begun or one.generation for one in there.values())]
        agreed = [self.file.generation, *(one.generation for one in there.values())]
        return _Present(states, membership.deciding(begun, agreed))

    def _is_own_turn(self, present, coming):
        """Returns True if enough workers are present and this one is the next chief."""
        order, states, last = present.order(), present.states, present.deciding[-1]
        if order is None or len(states) < self.min_workers:
            self._enough_since = None
            return False
        now = time.monotonic()
        self._enough_since = self._enough_since or now
        is_same = last.number > 0 and set(last.members) <= set(states) and not coming
        is_over = now >= self._enough_since + self.join_timeout
        are_all = len(states) == len(self.tasks.names)
        return (is_same or is_over or are_all) and order[0] == self.tasks.index

    def _propose(self, present, there):
        states, deciding = present.states, present.deciding
        # States may come from a cluster of other workers.
        saved_by = [state.generation for state in states.values() if state is not None]
        number = 1 + max([deciding[-1].number, *saved_by])
        generation = Generation(number, present.order(), self.num_copies, self.state)
        self._settle_until = time.monotonic() + _AGREE_SECONDS
        self.file.agree(generation, deciding[0])
        self._proposal = Proposal(generation, {i: other.run for i, other in there.items()})

    def _all_agreed(self, answers, told):
        """Returns True if all agreed to this worker's proposal, which is dropped after a while."""
        generation, workers = self._proposal.generation, self._proposal.runs
        # A worker without introductions has moved on to the rendezvous.
        agreed = all(
            told[i].generation == generation if i in told else answers[i][0] is not None
            for i in workers
        )
        if not agreed and time.monotonic() > self._settle_until:
            self._proposal = self._enough_since = None
        return agreed

    def _find_wrong(self, answers, told, heard):
        """Finds workers that were started differently.

        Raises:
            PeerError: there are such workers, and had the time to see it, too.
        """
        for index, (_, failure) in answers.items():
            why = self._difference(index, failure, told.get(index))
            if why is not None:
                self._wrong[index] = f"{self.tasks.describe(index)} {why}"
            elif index in told:
                self._wrong.pop(index, None)
        right = told.keys() - self._wrong.keys()
        # Workers with other lists may be out of reach. A cluster that trains tells its options.
        for other in _introduced(heard.latest_names()):
            if other.cluster not in (self.key, self.options) and other.worker not in right:
                self._wrong.setdefault(other.worker, f"worker {other.worker} {_DIFFERENT}")
        now = time.monotonic()
        self._wrong_since = (self._wrong_since or now) if self._wrong else None
        if self._wrong_since and now > self._wrong_since + _WRONG_SECONDS:
            raise PeerError("; ".join(list(self._wrong.values())[:_MOST_TOLD]))

    def _difference(self, index, failure, other):
        """Returns how a worker was started differently, given its introduction; or None."""
        if failure:
            reason = self._refusals.reason(index, failure)
            return reason if self._refusals.are_final(failure) else None
        if other is None:
            return None
        if other.cluster != self.key:
            return _DIFFERENT
        if other.worker != index:
            return f"says it is worker {other.worker}: start it with the index of its address"
        return None

    def _wait(self, present, answers):
        """Logs at times why training cannot start; raises PeerError at the deadline."""
        now = time.monotonic()
        if self._enough_since and now < self._enough_since + self.join_timeout + _SETTLE_SECONDS:
            return
        if any(
            failure == greetings.OTHER_PROGRAM or (name and decode(name) is None)
            for name, failure in answers.values()
        ):
            # The others admit this one after their next save.
            self._deadline = now + self.start_timeout
        if now < min(self._next_report, self._deadline):
            return
        absent = {
            i: self._refusals.reason(i, failure) if failure else ""
            for i, (_, failure) in answers.items()
            if i not in present.states
        }
        line = f"{self._why_waiting(present)}; missing: {self.tasks.describe_all(absent)}"
        if now > self._deadline:
            raise PeerError(line)
        _logger.warning("waiting: %s", line)
        self._next_report = now + _REPORT_SECONDS

    def _why_waiting(self, present):
        if self._enough_since:
            return "the workers that are present do not agree on the members"
        lacking, num_present = present.lacking(), len(present.states)
        last = lacking or present.deciding[-1]
        if num_present >= self.min_workers and lacking is None:
            return (
                "no worker that is present has the latest checkpoint, which worker"
                f" {last.members[0]} has; start that worker (copies need num_copies > 0)"
            )
        return (
            f"too few workers are present, {num_present} of {len(self.tasks.names)}: training"
            " needs more than half of the last members"
            f" ({membership.members_told(sorted(last.members))}), or half with their chief"
            f" ({last.members[0]}), and at least {self.min_workers} workers"
        )


def _introduced(names):
    return [introduction for introduction in map(decode, names) if introduction is not None]

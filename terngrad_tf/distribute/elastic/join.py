"""Clusters whose workers come and go: those that are there agree to train together.

They meet as those of every cluster do, by greeting each other at their own ports before TensorFlow
listens there. Each tells which generation of the cluster it knows of and what it has of the run;
who must be there, and who becomes the chief, follows from that, see `membership`. The chief to be
names the members of the next generation, each member writes it down and so agrees, and then they
train.
"""

import contextlib
import dataclasses
import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from terngrad_tf import tokens
from terngrad_tf.arguments import check_integer
from terngrad_tf.distribute.cluster import greetings, membership, rendezvous
from terngrad_tf.distribute.cluster.introductions import Introduction, Proposal, decode
from terngrad_tf.distribute.cluster.membership import Generation, MembersFile, SavedState
from terngrad_tf.distribute.cluster.refusals import Refusals
from terngrad_tf.distribute.cluster.resolvers import cluster_of
from terngrad_tf.distribute.communication import peers
from terngrad_tf.distribute.communication.peers import PeerError, Tasks

JOIN_SECONDS = 10.0
_POLL_SECONDS = 0.3
_WATCH_SECONDS = 3.0
_FIRST_REPORT_SECONDS = 10.0
_REPORT_SECONDS = 60.0
# Who has agreed to a generation has greeted all its other members by then, or tries again.
_SETTLE_SECONDS = 30.0
# So long it waits for the others to agree.
_AGREE_SECONDS = 15.0
# So long a worker that was started wrongly stays, for the others to learn it.
_WRONG_SECONDS = 10.0
# Workers that were started wrongly of which one line tells.
_MOST_TOLD = 2
_DIFFERENT = "was started differently: all workers need the same list of workers and equal options"

_logger = logging.getLogger(__name__)


class NewcomersError(RuntimeError):
    """Training was saved and ended, so that workers that wait can take part when it goes on."""

    def __init__(self, newcomers: str, step: int):
        super().__init__(f"stopped at step {step}, which is saved, to go on with {newcomers}")


class Membership:
    """A worker's place in a generation of a cluster, as `join_cluster` returns it.

    Attributes:
        cluster_resolver: `tf.distribute.cluster_resolver.ClusterResolver` of the members, for
            `TernGradStrategy`. They are its workers 0, 1, 2, ..., the chief first.
        members: indices of the members in the whole cluster's list of workers, in that order.
        number: of the generation, from 1.
        saves: whether this worker keeps the run's files: the chief, and those that copy it.
        num_copies: how many of the latter there should be.
    """

    def __init__(self, tasks: Tasks, file: MembersFile, key: str, token: str | None):
        self._tasks, self._file, self._key, self._token = tasks, file, key, token
        generation = file.generation
        self.members, self.number = generation.members, generation.number
        addresses = [tasks.addresses[index] for index in self.members]
        place = self.members.index(tasks.index)
        self.cluster_resolver = cluster_of(addresses, place)
        self.num_copies = generation.num_copies
        self.saves = place <= generation.num_copies

    @property
    def num_workers(self) -> int:
        """Workers of the whole cluster."""
        return len(self._tasks.names)

    def saved(self, step: int) -> None:
        """To be called by those that `saves`, after they saved.

        Args:
            step: steps done.

        Raises:
            OSError: the file that keeps it cannot be written.
        """
        self._file.saved(step)

    def waiting(self) -> list[str]:
        """Workers that wait to take part, such as "worker 2 (10.0.0.4:2222)"; looks for 2 s."""
        absent = set(range(self.num_workers)) - set(self.members)
        own = self._tasks.names[self._tasks.index]
        answers = peers.of_others(
            self._tasks,
            absent,
            lambda index: greetings.greet(self._tasks.addresses[index], own, self._token),
        )
        return [
            self._tasks.describe(index)
            for index, (name, _) in sorted(answers.items())
            if (other := decode(name)) is not None and other.cluster == self._key
        ]

    @contextlib.contextmanager
    def watch(self) -> Iterator[Callable[[], str]]:
        """Looks in the background, every few seconds, for workers that wait.

        Yields:
            Function without arguments that tells which, such as "worker 2 (10.0.0.4:2222)"; "" for
            none. Where this worker is not the chief, or none is missing, it does not look.
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
        """Such as "workers 0 and 2 of 3 train, as workers 0 and 1"."""
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
) -> Membership:
    """Finds out which workers of a cluster train together, and waits until these reach each other.

    They go on without the others if they are more than half of those that trained last (or half of
    them, with their chief), at least `min_workers`, and have what was saved last. Who comes while
    others train waits until these let it in.

    Args:
        cluster_resolver: of all workers that there may ever be.
        folder: path of the folder in which this worker keeps what is saved, and remembers the
            cluster. Made where it is missing.
        newest_step: function without arguments that returns the newest step saved there; None
            where nothing is.
        min_workers: fewest workers to train with. Default 1.
        num_copies: workers besides the chief that save, too. Default 0.
        join_timeout: seconds to wait for further workers where enough are there. Default 10.
        start_timeout: seconds to wait for enough of them, while no others train. Default 600.
        token: as for `TernGradStrategy`.

    Returns:
        A `Membership`.

    Raises:
        ValueError: an argument is out of range, or what the folder remembers is damaged.
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
    options = [*tasks.addresses, min_workers, num_copies]
    key = hashlib.sha256(repr(options).encode()).hexdigest()[:16]
    meeting = _Meeting(
        tasks, file, state, key, token, min_workers, num_copies, join_timeout, start_timeout
    )
    while True:
        meeting.agree()
        joined = Membership(tasks, file, key, token)
        try:
            members = peers.tasks_of(joined.cluster_resolver)
            rendezvous.wait_for_peers(members, _SETTLE_SECONDS, token)
            return joined
        except PeerError as error:
            _logger.warning("%s; the workers meet again", error)


@dataclasses.dataclass
class _Meeting:
    """Workers that tell each other what they have until they agree."""

    tasks: Tasks
    file: MembersFile
    state: SavedState | None
    key: str
    token: str | None
    min_workers: int
    num_copies: int
    join_timeout: float
    start_timeout: float

    def __post_init__(self):
        self._run = secrets.token_hex(8)
        self._proposal = self._enough_since = self._wrong_since = None
        self._wrong: dict[int, str] = {}
        self._refusals = Refusals(self.tasks, self.token)
        self._settle_until = 0.0
        self._deadline = time.monotonic() + self.start_timeout
        self._next_report = time.monotonic() + _FIRST_REPORT_SECONDS

    def agree(self):
        """Returns once `file` holds a generation that this process is a member of.

        Raises:
            PeerError: that does not come about.
        """
        self._proposal = self._enough_since = None
        with rendezvous.answering(self.tasks, self._introduction, self.token) as heard:
            while not self._look(heard):
                time.sleep(_POLL_SECONDS)

    def _introduction(self):
        generation, own = self.file.generation, self.tasks.index
        told = Introduction(self.key, own, self._run, generation, self.state, self._proposal)
        return told.encode()

    def _look(self, heard):
        """Looks who is there; whether that settles it."""
        own = self._introduction()
        answers = peers.of_others(
            self.tasks, None, lambda i: greetings.greet(self.tasks.addresses[i], own, self.token)
        )
        told = {i: found for i, (name, _) in answers.items() if (found := decode(name))}
        self._refuse_different(answers, told, heard)
        told = {i: other for i, other in told.items() if i not in self._wrong}
        met = {(who.worker, who.run) for who in _introduced(heard.names())}
        there = {i: other for i, other in told.items() if (other.worker, other.run) in met}
        if self._proposal is not None:
            return self._all_agreed(answers, told)
        if self._agrees(there):
            return True
        if self._wrong:
            return False  # until that is mended, or ends the meeting
        last, states = self._known(there)
        if self._is_own_turn(last, states, coming=told.keys() - there.keys()):
            order = last.order(states)
            # States may be of a cluster of other workers.
            before = max([last.number, *(s.generation for s in states.values() if s is not None)])
            generation = Generation(before + 1, order, self.num_copies, self.state)
            self._settle_until = time.monotonic() + _AGREE_SECONDS
            self.file.agree(generation)
            self._proposal = Proposal(generation, {i: other.run for i, other in there.items()})
        else:
            self._wait(last, states, answers)
        return False

    def _agrees(self, there):
        """Agrees to a generation that another worker proposes, if one does."""
        for other in there.values():
            proposal = other.proposal
            if proposal is None or proposal.runs.get(self.tasks.index) != self._run:
                continue
            if proposal.generation.number > self.file.generation.number:
                self.file.agree(proposal.generation)
                return True
        return False

    def _known(self, there):
        """The last generation that anybody knows of, and what each worker brings."""
        states = {index: other.state for index, other in there.items()}
        states[self.tasks.index] = self.state
        generations = [self.file.generation, *(other.generation for other in there.values())]
        return max(generations, key=lambda generation: generation.number), states

    def _is_own_turn(self, last, states, coming):
        """Whether enough workers are there, and this one is the chief to be."""
        now, num_workers = time.monotonic(), len(self.tasks.names)
        order = last.order(states) if last.may_continue(states) else None
        if order is None or len(states) < self.min_workers:
            self._enough_since = None
            return False
        self._enough_since = self._enough_since or now
        is_same = last.number > 0 and set(last.members) <= set(states) and not coming
        is_over = now >= self._enough_since + self.join_timeout
        if not is_same and not is_over and len(states) < num_workers:
            return False
        return order[0] == self.tasks.index

    def _all_agreed(self, answers, told):
        """Whether all agreed to this worker's proposal; after a while it may make another."""
        number, workers = self._proposal.generation.number, self._proposal.runs
        # Who does not introduce itself any more went on, to greet the members.
        agreed = all(
            told[i].generation.number >= number if i in told else answers[i][0] is not None
            for i in workers
        )
        if not agreed and time.monotonic() > self._settle_until:
            self._proposal = self._enough_since = None
        return agreed

    def _refuse_different(self, answers, told, heard):
        """Raises PeerError where workers were started differently, once they know it, too."""
        for index, (_, failure) in answers.items():
            other, why = told.get(index), None
            reason = self._refusals.reason(index, failure) if failure else None
            if self._refusals.are_final(failure):
                why = reason
            elif other is not None and other.cluster != self.key:
                why = _DIFFERENT
            elif other is not None and other.worker != index:
                why = f"says it is worker {other.worker}: each needs the index of its own address"
            elif other is not None:
                self._wrong.pop(index, None)
            if why is not None:
                # It may be gone by the time that this is told.
                self._wrong[index] = f"{self.tasks.describe(index)} {why}"
        right = told.keys() - self._wrong.keys()
        # A process with another list may be out of this one's reach.
        for other in _introduced(heard.latest_names()):
            if other.cluster != self.key and other.worker not in right:
                self._wrong.setdefault(other.worker, f"worker {other.worker} {_DIFFERENT}")
        now = time.monotonic()
        self._wrong_since = (self._wrong_since or now) if self._wrong else None
        if self._wrong_since and now > self._wrong_since + _WRONG_SECONDS:
            raise PeerError("; ".join(list(self._wrong.values())[:_MOST_TOLD]))

    def _wait(self, last, states, answers):
        """Tells from time to time what is missing; raises PeerError when time is over."""
        now = time.monotonic()
        if self._enough_since and now < self._enough_since + self.join_timeout + _SETTLE_SECONDS:
            return
        if any(
            failure == greetings.OTHER_PROGRAM or (name and decode(name) is None)
            for name, failure in answers.values()
        ):
            # Others train, and take this worker in when they have saved.
            self._deadline = now + self.start_timeout
        if now < min(self._next_report, self._deadline):
            return
        if self._enough_since:
            why = "the workers that are there do not agree on who they are"
        elif len(states) >= self.min_workers and last.may_continue(states):
            why = (
                "no worker that is there has what was saved last, as worker"
                f" {last.members[0]} has; copies are kept where they are asked for"
            )
        else:
            why = (
                f"too few workers are there, {len(states)} of {len(self.tasks.names)}: to go on,"
                " more than half of those that trained last must be"
                f" ({membership.members_told(sorted(last.members))}), or half with their chief"
                f" ({last.members[0]}), and at least {self.min_workers}"
            )
        absent = {
            i: self._refusals.reason(i, failure) if failure else ""
            for i, (_, failure) in answers.items()
            if i not in states
        }
        line = f"{why}; missing: {self.tasks.describe_all(absent)}"
        if now > self._deadline:
            raise PeerError(line)
        _logger.warning("waiting: %s", line)
        self._next_report = now + _REPORT_SECONDS


def _introduced(names):
    return [introduction for introduction in map(decode, names) if introduction is not None]

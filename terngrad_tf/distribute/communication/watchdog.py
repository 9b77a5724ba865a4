"""Finds processes of a cluster that wait for each other forever, at different places.

A thread of each process measures how long its program waits at a place where all must take part,
and then asks for the others' places. Processes that came to different places in the same turn can
never continue; slow ones can. Killed ones, which TensorFlow sometimes notices by missing heartbeats
alone, refuse connections.
"""

import atexit
import contextlib
import dataclasses
import json
import logging
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from terngrad_tf.common.places import History, first_difference, places
from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication import endings, peers
from terngrad_tf.distribute.communication.connections import REFUSED, connection_failure
from terngrad_tf.distribute.communication.pauses import pauses
from terngrad_tf.distribute.communication.peers import PeerError, Tasks

# Wait before the first question; the wait then doubles.
ASK_SECONDS = 15.0
LOOK_SECONDS = 2.0
# A debugged process does not answer.
_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.05
TELL_SECONDS = 60.0
# An unanswered question costs the first process 25 KB forever, so ask seldom.
_LISTEN_SECONDS = 3600.0
# The first process stores the messages, so it waits for the others to read its last one.
_LEAVE_SECONDS = 5.0

_logger = logging.getLogger(__name__)
_watch: Any = None


def watch(tasks: Tasks | None) -> None:
    """Watches this process from now on, if it is one of several; all call it once."""
    global _watch
    if _watch is None and tasks is not None and len(tasks.names) > 1:
        _watch = _Watchdog(tasks)
        atexit.register(_watch.leave)


def find_difference() -> str | None:
    """Returns the line on processes at different places, after asking them; None if they agree.

    Exchanges of different kinds meet under one key, and TensorFlow's error names no place.
    """
    return None if _watch is None else _watch.find_difference()


def check() -> None:
    """Raises PeerError if processes wait for each other at different places."""
    if _watch is not None and _watch.failure is not None:
        raise PeerError(_watch.failure)


class _Watchdog:
    """Two threads: one measures how long this process waits, the other receives messages.

    A message, with the next number, asks for places or announces the sender's end; all answer.
    """

    def __init__(self, tasks):
        self.failure = None
        self._tasks = tasks
        self._next = 0
        self._left = {}
        for function in (self._look, self._listen):
            threading.Thread(target=function, daemon=True).start()

    def find_difference(self):
        """Asks all processes, and returns the failure that this one then finds, or None."""
        with contextlib.suppress(tf.errors.OpError):
            number = self._send({"from": self._tasks.index})
            deadline = time.monotonic() + 2 * _ANSWER_SECONDS
            while self.failure is None and self._next <= number and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        return self.failure

    def leave(self):
        """Reports to the others that this process ends, and why."""
        # An interactive session continues after an error.
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        if isinstance(error, PeerError) or endings.is_told():
            return
        why = "" if error is None else peers.ended(self._tasks, error)
        # The first process's machine may be lost.
        thread = threading.Thread(target=self._leave, args=(why,), daemon=True)
        thread.start()
        thread.join(_LEAVE_SECONDS)

    def _leave(self, why):
        with contextlib.suppress(tf.errors.OpError):
            history = dataclasses.asdict(places.history())
            number = self._send({"from": self._tasks.index, "ends": why, **history})
            if self._tasks.index:
                return
            for index in range(1, len(self._tasks.names)):
                while (
                    index not in endings.known()
                    and private.published(_key(number, index), 1.0) is None
                    and connection_failure(self._tasks.addresses[index]) != REFUSED
                ):
                    pass

    def _send(self, message):
        while True:
            number = self._next
            try:
                private.publish(_key(number), json.dumps(message))
                return number
            except tf.errors.AlreadyExistsError:  # another process took this number
                self._next = max(self._next, number + 1)

    def _look(self):
        asked_at = probed_at = 0.0
        with contextlib.suppress(tf.errors.OpError):
            while self.failure is None:
                with pauses.sleep_of(LOOK_SECONDS):
                    time.sleep(LOOK_SECONDS)
                seconds = places.seconds_at()
                if seconds < probed_at:
                    asked_at = probed_at = 0.0
                if seconds >= max(LOOK_SECONDS, 2 * probed_at):
                    probed_at = seconds
                    self._probe()
                if seconds >= max(ASK_SECONDS, 2 * asked_at):
                    asked_at = seconds
                    self._send({"from": self._tasks.index})

    def _probe(self):
        failures = peers.unreachable(self._tasks)
        gone = {index: why for index, why in failures.items() if why == REFUSED}
        if gone and places.seconds_at():
            self._fail(peers.lost(self._tasks, gone))

    def _listen(self):
        number = 0
        with contextlib.suppress(tf.errors.OpError):
            while self.failure is None:
                text = private.published(_key(number), _LISTEN_SECONDS)
                if text is None:
                    continue
                self._hear(number, json.loads(text))
                number += 1
                self._next = max(self._next, number)

    def _hear(self, number, message):
        sender, own = message["from"], self._tasks.index
        here = places.history()
        private.publish(_key(number, own), json.dumps(dataclasses.asdict(here)))
        if "ends" in message:
            self._left[sender] = History(message["skipped"], message["names"])
            endings.note(sender, message["ends"])
            if sender != own:
                self._judge({**self._left, own: here})
            return
        histories = {**self._left, own: here}
        deadline = time.monotonic() + _ANSWER_SECONDS
        for index in set(range(len(self._tasks.names))) - set(histories):
            left = max(deadline - time.monotonic(), 0.01)
            text = private.published(_key(number, index), left)
            if text is not None:
                histories[index] = History(**json.loads(text))
        self._judge(histories)

    def _judge(self, histories: Mapping[int, History]) -> None:
        position = first_difference(list(histories.values()))
        if position is not None:
            at = {index: history.at(position) for index, history in sorted(histories.items())}
            at = {index: place for index, place in at.items() if place is not None}
            self._fail(peers.at_different_places(self._tasks, at))
            return
        behind = self._behind(histories)
        over = [index for index in behind if index in self._left]
        if over:
            self._fail(peers.last_words(self._tasks, over))
        elif behind and places.seconds_at() >= TELL_SECONDS:
            _logger.warning(
                "waiting in %s for %.0f s: %s",
                places.waits_at,
                places.seconds_at(),
                ", ".join(f"{self._tasks.names[i]} is not there yet" for i in behind),
            )

    def _behind(self, histories):
        """Returns the processes that have not come to this one's place."""
        if not places.seconds_at():
            return []
        length = histories[self._tasks.index].length
        return sorted(index for index, history in histories.items() if history.length < length)

    def _fail(self, line):
        self.failure = line
        peers.tell_all(line)


def _key(number, index=None):
    key = f"terngrad_tf/watch/{number}"
    return key if index is None else f"{key}/{index}"

"""Logs and remembers why processes at peers' addresses do not belong to the cluster.

Any program may answer at an absent peer's address, so a process with a token waits on.
"""

import logging

from terngrad_tf.distribute.cluster import greetings
from terngrad_tf.distribute.communication.peers import Tasks

_RULE = "all processes of a cluster need the same token"

_logger = logging.getLogger(__name__)


class Refusals:
    """The refused answers of other processes."""

    def __init__(self, tasks: Tasks, token: str | None = None):
        self._tasks = tasks
        self._token = token
        self._refused: dict[int, str] = {}

    def are_final(self, failure: str | None) -> bool:
        """Returns True if a failure of `greetings.greet` proves a wrong start."""
        return self._token is None and failure in greetings.REFUSALS

    def reason(self, index: int, failure: str) -> str:
        """Returns why a process does not take part yet, for a failure of `greetings.greet`."""
        before = self._refused.get(index)
        if failure not in greetings.REFUSALS:
            return f"{failure}; before, a process there {before}" if before else failure
        why = f"{failure}: {_RULE}"
        if self._token is not None and why != before:
            self._refused[index] = why
            _logger.warning("waiting for another process: %s %s", self._tasks.describe(index), why)
        return why

"""Why processes that answer at peers' addresses are none of the cluster, told and remembered.

Whoever listens at an absent peer's address can answer without the token. A process that has one
tells who answers wrongly and goes on waiting for the right one.
"""

import logging

from terngrad_tf.distribute.cluster import greetings
from terngrad_tf.distribute.communication.peers import Tasks

_RULE = "all processes of a cluster need the same token"

_logger = logging.getLogger(__name__)


class Refusals:
    """What this process tells of those that it greeted in vain.

    Args:
        tasks: `Tasks`.
        token: this process's. Default: none.
    """

    def __init__(self, tasks: Tasks, token: str | None = None):
        self._tasks = tasks
        self._token = token
        self._refused: dict[int, str] = {}

    def are_final(self, failure: str | None) -> bool:
        """Whether a failure of `greetings.greet` tells that this process was started wrongly."""
        return self._token is None and failure in greetings.REFUSALS

    def reason(self, index: int, failure: str) -> str:
        """Why a process does not take part yet.

        Args:
            index: its place among the tasks.
            failure: that of `greetings.greet`.
        """
        before = self._refused.get(index)
        if failure not in greetings.REFUSALS:
            return f"{failure}; before, a process there {before}" if before else failure
        why = f"{failure}: {_RULE}"
        if self._token is not None and why != before:
            self._refused[index] = why
            _logger.warning("waiting for another process: %s %s", self._tasks.describe(index), why)
        return why

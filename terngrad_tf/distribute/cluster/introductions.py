"""What a worker tells of itself to others with which it agrees on who takes part.

It is the name by which they greet each other, in JSON.
"""

import dataclasses
import json
from collections.abc import Mapping

from terngrad_tf import strict_json
from terngrad_tf.distribute.cluster import membership
from terngrad_tf.distribute.cluster.membership import Generation, SavedState


@dataclasses.dataclass(frozen=True)
class Proposal:
    """What the chief to be lets workers agree to.

    Attributes:
        generation: the `Generation`.
        runs: `Introduction.run` of its members but the chief, by their indices.
    """

    generation: Generation
    runs: Mapping[int, str]


@dataclasses.dataclass(frozen=True)
class Introduction:
    """What a worker tells of itself.

    Attributes:
        cluster: digest of what all workers must have been started with alike.
        worker: its index in the list of all workers.
        run: text that tells this process from one that was there before.
        generation: the last `Generation` that it agreed to.
        state: the `SavedState` that it has; None for nothing.
        proposal: its `Proposal`, if it made one.
    """

    cluster: str
    worker: int
    run: str
    generation: Generation
    state: SavedState | None
    proposal: Proposal | None = None

    def encode(self) -> str:
        """A line of ASCII."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))


def is_introduction(name: str) -> bool:
    """Whether a name is meant to be what `Introduction.encode` returns."""
    return name.startswith("{")


def decode(name: str | None) -> Introduction | None:
    """The `Introduction` that was encoded; None for anything else, whoever sent it."""
    if name is None or not is_introduction(name):
        return None
    try:
        told = strict_json.parse_json(name)
        proposal = told["proposal"]
        if proposal is not None:
            runs = {int(worker): _text(run) for worker, run in proposal["runs"].items()}
            generation = membership.generation_from(proposal["generation"])
            proposal = Proposal(generation, runs)
        return Introduction(
            _text(told["cluster"]),
            membership.count(told["worker"]),
            _text(told["run"]),
            membership.generation_from(told["generation"]),
            membership.state_from(told["state"]),
            proposal,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _text(value):
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value

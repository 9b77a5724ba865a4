"""Introductions of workers that agree on the members of a cluster: greetings' names, in JSON."""

import dataclasses
import json
from collections.abc import Mapping

from terngrad_tf.common import strict_json
from terngrad_tf.distribute.cluster import membership
from terngrad_tf.distribute.cluster.membership import Generation, SavedState


@dataclasses.dataclass(frozen=True)
class Proposal:
    """The future chief's proposal; `runs` are those of the other members, by index."""

    generation: Generation
    runs: Mapping[int, str]


@dataclasses.dataclass(frozen=True)
class Introduction:
    """A worker's description of itself.

    Attributes:
        cluster: digest of the settings that all workers must share.
        worker: index in the list of all workers.
        run: distinguishes this process from an earlier one of the same worker.
        generation: the last one to which the worker agreed.
        options: digest of settings that a worker must share with a cluster that trains already;
            workers that begin together compare these later, by name.
        begun: the last generation known to the worker that all members joined; None if
            `generation`.
    """

    cluster: str
    worker: int
    run: str
    generation: Generation
    state: SavedState | None
    proposal: Proposal | None = None
    options: str = ""
    begun: Generation | None = None

    def encode(self) -> str:
        """Returns the introduction as a line of ASCII."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))


def is_introduction(name: str) -> bool:
    """Returns True if a name looks like an `Introduction`."""
    return name.startswith("{")


def decode(name: str | None) -> Introduction | None:
    """Returns the `Introduction` of an encoded name; None for other text of any sender."""
    if name is None or not is_introduction(name):
        return None
    try:
        told = strict_json.parse_json(name)
        proposal = told["proposal"]
        if proposal is not None:
            runs = {int(worker): _text(run) for worker, run in proposal["runs"].items()}
            generation = membership.generation_from(proposal["generation"])
            proposal = Proposal(generation, runs)
        begun = told["begun"]
        return Introduction(
            _text(told["cluster"]),
            membership.count(told["worker"]),
            _text(told["run"]),
            membership.generation_from(told["generation"]),
            membership.state_from(told["state"]),
            proposal,
            _text(told["options"]),
            begun if begun is None else membership.generation_from(begun),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _text(value):
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value

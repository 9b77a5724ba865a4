"""Lets the processes of a cluster agree on how they divide data, before they read."""

import dataclasses
import functools
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.communication.peers import PeerError
from terngrad_tf.distribute.consistency.signatures import (
    are_alike,
    signature_of_batch,
    signature_of_elements,
)

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Source:
    """A process's description of the data that it is about to read.

    Attributes:
        num_batches: None if unknown before their end.
        is_own: True if the user has stated that each process reads its own examples.
        are_distorted: as in `signatures.are_alike`.
        signature: signature of the first examples; None if the user stated how processes share
            the data.
        remedy: advice for processes that read different examples; None: each takes its own batches
            whole.
        order: each random generator's seeds and number of uses.
        seed: a random number.
        states: states of random generators that may shuffle the data; None for an unseeded one.
    """

    kind: str
    num_batches: int | None = None
    is_infinite: bool = False
    is_own: bool = False
    are_distorted: bool = True
    signature: list[Any] | None = None
    remedy: str | None = None
    order: Sequence[Sequence[int]] = ()
    seed: int = 0
    states: Mapping[str, int | None] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The result of the sources of all processes.

    Attributes:
        is_own: True if each process reads its own examples.
        num_batches: batches of the process with most; None if a process does not know its number.
        is_infinite: True if no process's data end.
        seed: the chief's.
        shared: names of the `states` that are equal on all processes.
    """

    is_own: bool
    num_batches: int | None
    is_infinite: bool
    seed: int
    shared: frozenset[str]


class Feeding:
    """Brings the processes of a cluster to an `Agreement`."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self._has_told = False

    def agree(self, kind: str, batch: Any = None, elements: Any = None, **source: Any) -> Agreement:
        """Agrees on the data of all processes, which call this at the same point of the program.

        Args:
            kind: as in `Source`.
            batch: structure of arrays or tensors to compare.
            elements: lists of such structures to compare.
            **source: other attributes of `Source`.

        Raises:
            PeerError: kinds of data differ, or examples although this is refused.
        """
        signature = None
        if batch is not None:
            signature = signature_of_batch(batch)
        elif elements is not None:
            signature = [part for some in elements for part in signature_of_elements(some)]
        own = Source(kind, signature=signature, **source)
        sources = [Source(**told) for told in _gather(self._strategy, dataclasses.asdict(own))]
        names = self._strategy.tasks.names
        agreement = agreement_of(sources, names)
        is_found = agreement.is_own and signature is not None
        if is_found and self._strategy.is_chief and not self._has_told:
            self._has_told = True
            _logger.warning(
                "each process's %s gives batches of its own, all of which a step takes; give the"
                " same batches on all processes to have each take its part",
                kind,
            )
        return agreement


def agreement_of(sources: Sequence[Source], names: Sequence[str]) -> Agreement:
    """Returns the `Agreement` of these processes, or raises as `Feeding.agree`."""
    first = sources[0]
    for source, name in zip(sources, names, strict=True):
        if source.kind != first.kind:
            raise PeerError(
                f"the processes read different data: {first.kind} on {names[0]} but {source.kind}"
                f" on {name}"
            )
    is_own = first.is_own or _are_own(sources, names)
    if not is_own:
        _check_lengths(sources, names)
    _check_orders(sources, names)
    counts = [source.num_batches for source in sources]
    shared = {
        state
        for state, value in first.states.items()
        if value is not None and all(source.states.get(state) == value for source in sources)
    }
    return Agreement(
        is_own=is_own,
        num_batches=None if None in counts else max(c for c in counts if c is not None),
        is_infinite=all(source.is_infinite for source in sources),
        seed=first.seed,
        shared=frozenset(shared),
    )


def _are_own(sources, names):
    first = sources[0]
    same = functools.partial(are_alike, are_distorted=first.are_distorted)
    signatures = [source.signature for source in sources]
    if None in signatures or same(signatures):
        return False
    pairs = zip(signatures, names, strict=True)
    others = [name for own, name in pairs if not same([first.signature, own])]
    remedy = first.remedy
    if remedy is None:
        if not any(same([a, b]) for i, a in enumerate(signatures) for b in signatures[:i]):
            return True
        remedy = "give the same to all processes, or other examples to each"
    raise PeerError(
        f"{', '.join(others)} {'read' if len(others) > 1 else 'reads'} other examples than"
        f" {names[0]} ({first.kind}): {remedy}"
    )


def _check_lengths(sources, names):
    lengths = ["no end" if s.is_infinite else s.num_batches for s in sources]
    for length, name in zip(lengths, names, strict=True):
        if length != lengths[0]:
            raise PeerError(
                f"the processes' {sources[0].kind} must be of one length. Received: batches:"
                f" {lengths[0]} on {names[0]}, {length} on {name}"
            )


def _check_orders(sources, names):
    first = sources[0]
    for source, name in zip(sources, names, strict=True):
        if source.order == first.order:
            continue
        if [seeds[:2] for seeds in source.order] != [seeds[:2] for seeds in first.order]:
            raise PeerError(
                f"{name} shuffles its {source.kind} by other seeds than {names[0]}: make the same"
                " data sets in the same order on all processes, or give them a `seed`"
            )
        raise PeerError(
            f"{name} began to read its {source.kind} at other times than {names[0]}, so that it"
            " goes on with another order: read it on all processes alike, or a data set of its own"
        )


def _gather(strategy, value):
    """Returns all processes' values, which JSON can hold."""
    group = strategy.extended.process_group
    content = json.dumps(value).encode()
    size = np.array([len(content)], np.int32)
    sizes = group.all_gather(tf.constant(size)).numpy()[:, 0]
    words = np.frombuffer(content.ljust(4 * -(-max(sizes) // 4)), np.int32)
    gathered = group.all_gather(tf.constant(words)).numpy()
    return [json.loads(own.tobytes()[:n]) for own, n in zip(gathered, sizes, strict=True)]

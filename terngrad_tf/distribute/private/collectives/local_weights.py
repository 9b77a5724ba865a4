"""Weights that each replica has of its own between exchanges, behind the variables of a model.

A model's variables hold what all replicas share, which is what anybody sees: evaluation, callbacks,
checkpoints. While replicas take steps of their own, the same variables stand for each replica's own
weights, in which the forward pass is computed and which the optimizer updates.
"""

import contextlib
import functools
import threading
import typing
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.patches import patch

_state = threading.local()


class LocalStepsOptimizer(keras.optimizers.Optimizer):
    """Base of optimizers whose steps are a replica's own until an exchange.

    Attributes:
        silent_steps: whether processes take different numbers of steps, so that steps must send
            nothing at all.
    """

    silent_steps = False

    def claim_weights(self) -> None:
        """Lets replicas have weights of their own for this optimizer, and for no other."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Exchanges what steps since the last exchange changed; all processes call it together."""
        raise NotImplementedError

    def run_step(self, step: Callable[[], Any], size: int) -> Any:
        """What Keras' loop does in place of a step; returns logs.

        Args:
            step: Keras' function, without arguments, which returns logs.
            size: how many steps that takes.
        """
        return step()

    def agree_on_logs(self, logs: typing.Any, reduce: typing.Any) -> typing.Any:
        """What callbacks see of a step: structure of tensors, the same on all processes.

        Args:
            logs: structure of tensors, this process's.
            reduce: function of such a structure to its mean over processes.
        """
        raise NotImplementedError


def local_steps_optimizer(optimizer: Any) -> LocalStepsOptimizer | None:
    """The `LocalStepsOptimizer` that an optimizer is, or scales the loss for; None for others."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer if isinstance(optimizer, LocalStepsOptimizer) else None


@contextlib.contextmanager
def _within(name: str, value: Any) -> Iterator[None]:
    """Context in which a part of this thread's state has a value."""
    previous = getattr(_state, name, None)
    setattr(_state, name, value)
    try:
        yield
    finally:
        setattr(_state, name, previous)


def local_updates() -> contextlib.AbstractContextManager[None]:
    """In replica context: optimizers update what the replica has, by its own gradients."""
    return _within("are_local", True)


def updates_are_local() -> bool:
    """Whether an optimizer's gradients are to stay where they are."""
    return bool(getattr(_state, "are_local", False))


def gradients_of_one_size(are_so: bool) -> contextlib.AbstractContextManager[None]:
    """What is exchanged has one size in each tensor that is rounded, or is 0: nothing to round."""
    return _within("are_of_one_size", are_so)


def gradients_are_of_one_size() -> bool:
    """Whether all elements of a gradient that are not 0 are of one size."""
    return bool(getattr(_state, "are_of_one_size", False))


def keras_loop(
    kind: str | None, optimizer: keras.optimizers.Optimizer | None = None
) -> contextlib.AbstractContextManager[None]:
    """What runs within is a step of Keras' loop of this kind, of a model with this optimizer.

    Or it is none, where `kind` is None.
    """
    return _within("loop", (kind, local_steps_optimizer(optimizer) if kind == "train" else None))


def optimizer_of_local_step() -> LocalStepsOptimizer | None:
    """The `LocalStepsOptimizer` whose training step Keras runs; None elsewhere."""
    _, optimizer = getattr(_state, "loop", None) or (None, None)
    return optimizer


def check_sends() -> None:
    """Refuses messages between processes in steps that must have none.

    Raises:
        ValueError: within such a step.
    """
    optimizer = optimizer_of_local_step()
    if optimizer is not None and optimizer.silent_steps:
        raise ValueError(
            "`sync_seconds` must go with steps that send nothing, as processes take different"
            " numbers of them. This one does: data that end (give `fit` those of `repeat()`, and"
            " `steps_per_epoch`), loss scaling, or synchronized batch norm"
        )


def evaluates() -> bool:
    """Whether Keras runs a step that does not train."""
    kind, _ = getattr(_state, "loop", None) or (None, None)
    return kind in ("test", "predict")


class LocalWeights:
    """Two sets of values of the same variables: shared by all replicas, and each replica's own.

    Args:
        variables: list of distributed variables.
        own: list of distributed variables like them, with a copy for each replica.
        groups: lists of positions of variables that are exchanged together.
        is_renewed: function of a group's number to a scalar bool tensor, whether own values of its
            variables are to be those shared.
    """

    def __init__(
        self,
        variables: Sequence[Any],
        own: Sequence[Any],
        groups: Sequence[Sequence[int]],
        is_renewed: Callable[[int], tf.Tensor],
    ):
        self._variables = variables
        self._groups = groups
        self._is_renewed = is_renewed
        self._own = [(variable.values, variable._update_replica) for variable in own]
        self._shared = [(v.values, vars(v).get("_update_replica")) for v in variables]

    @property
    def variables(self) -> Sequence[Any]:
        """The variables that stand for both."""
        return self._variables

    def holds_any(self, variables: Sequence[Any]) -> bool:
        """Whether one of the distributed variables is among these."""
        return not {id(v) for v in self._variables}.isdisjoint(id(v) for v in variables)

    def begin_step(self) -> None:
        """Gives replicas the shared values where the last step exchanged; in cross-replica context.

        Not at the exchange: weights may be loaded, or taken from the chief, after it.
        """

        def copy(positions):
            for i in positions:
                for replica, component in enumerate(self._own[i][0]):
                    component.assign(self._variables[i]._get_replica(replica))
            return tf.constant(0)

        for number, positions in enumerate(self._groups):
            tf.cond(
                self._is_renewed(number),
                functools.partial(copy, positions),
                lambda: tf.constant(0),
            )

    def changes(self, group: int) -> list[list[tf.Tensor]]:
        """Shared values less own ones of a group, of each of its variables and local replicas."""
        return [
            [value - own for value, own in zip(self._shared[i][0], self._own[i][0], strict=True)]
            for i in self._groups[group]
        ]

    def own_tensors(self, group: int) -> list[tf.Tensor]:
        """Own values of a group, of all its variables and local replicas."""
        return [own.read_value() for i in self._groups[group] for own in self._own[i][0]]

    def mix(self, group: int, share: float) -> None:
        """Gives replicas this share of their own values of a group and the rest of those shared."""
        for i in self._groups[group]:
            for shared, own in zip(self._shared[i][0], self._own[i][0], strict=True):
                mixed = share * own + (1 - share) * shared if share else shared
                own.assign(mixed)

    def own_values(self) -> contextlib.AbstractContextManager[None]:
        """Context in which the variables stand for each replica's own values."""
        return self._standing_for(self._own)

    def shared_values(self) -> contextlib.AbstractContextManager[None]:
        """Context in which they stand for the shared values, as they do outside of replicas."""
        return self._standing_for(self._shared)

    @contextlib.contextmanager
    def _standing_for(self, values):
        before = [(v.values, vars(v).get("_update_replica")) for v in self._variables]
        self._set(values)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, values):
        for variable, (components, update_replica) in zip(self._variables, values, strict=True):
            variable._values = components
            if update_replica is None:
                vars(variable).pop("_update_replica", None)
            else:
                variable._update_replica = update_replica


class LocalStepReplicas(LocalReplicas):
    """What a strategy's `extended` knows of replicas that have weights of their own."""

    def _initialize_local_steps(self):
        self._local_weights = weakref.WeakSet()
        self._local_statistics = weakref.WeakValueDictionary()
        self._keeps_statistics = False

    def add_local_weights(self, weights: LocalWeights) -> None:
        """Lets replicas have own values of some variables, in place of others of theirs."""
        self.end_local_weights(weights.variables)
        self._local_weights.add(weights)

    def end_local_weights(self, variables: Sequence[Any]) -> None:
        """Lets replicas have no values of these distributed variables of their own."""
        for weights in list(self._local_weights):
            if weights.holds_any(variables):
                self._local_weights.discard(weights)

    def has_local_weights(self, weights: LocalWeights) -> bool:
        """Whether replicas have these values of their own."""
        return weights in self._local_weights

    @contextlib.contextmanager
    def _own_weights(self):
        """Around a function of all replicas: what they see are their own weights, if it trains."""
        with contextlib.ExitStack() as stack:
            for weights in () if evaluates() else self._local_weights:
                weights.begin_step()
                stack.enter_context(weights.own_values())
            yield

    def keep_statistics(self) -> None:
        """Lets replicas of this run share batch-norm statistics with none of other processes."""
        self._keeps_statistics = True

    def average_statistics(self) -> None:
        """Gives all processes the mean of what batch norm wrote since the last exchange."""
        written = list({**self._local_statistics, **self._written}.values())
        if written and self.process_group is not None:
            self._assign_means(written, self.process_group)

    def _end_run(self):
        """Gives all replicas the mean of what they wrote in the run that ends."""
        written, self._written = list(self._written.values()), {}
        keeps, self._keeps_statistics = self._keeps_statistics, False
        if not written or self._num_replicas_in_sync == 1:
            return
        if tf.executing_eagerly():
            self._warn_of_means(written)
        group, shares = self.process_group, self.shares_of_run
        if keeps and group is not None:
            self._local_statistics.update((id(variable), variable) for variable in written)
            shares = shares and [share * group.size for share in shares]
            group = None
        self._assign_means(written, group, shares)


@patch(keras.callbacks.CallbackList, "on_test_begin", "on_epoch_end")
def _synchronize_first(stock, self, *args, **kwargs):
    """Exchanges what the last steps of an epoch changed before anybody looks at the weights."""
    optimizer = local_steps_optimizer(getattr(self.model, "optimizer", None))
    if optimizer is not None:
        optimizer.synchronize()
    return stock(self, *args, **kwargs)

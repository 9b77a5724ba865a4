"""Own weights of replicas between exchanges, behind the variables of a model.

Evaluation, callbacks and checkpoints see the variables' shared values. During a replica's step, the
variables stand for its own values.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute.private import holders
from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.steps.contexts import evaluates
from terngrad_tf.distribute.steps.local_steps_optimizer import (
    LocalStepsOptimizer,
    local_steps_optimizer,
)
from terngrad_tf.distribute.steps.message_guard import MessageGuard


class LocalWeights:
    """Two sets of values of the same variables: shared by all replicas, and each replica's own.

    Args:
        variables: distributed variables with the shared values.
        own: similar variables with one copy per replica.
        groups: positions of variables that are exchanged together.
        is_renewed: function of a group's number that returns a scalar bool tensor: True if replicas
            take the shared values before the next step.
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
        """The distributed variables."""
        return self._variables

    def holds_any(self, variables: Sequence[Any]) -> bool:
        """True if one of these distributed variables has own values."""
        return not {id(v) for v in self._variables}.isdisjoint(id(v) for v in variables)

    def begin_step(self) -> None:
        """Gives replicas the shared values of renewed groups; in cross-replica context.

        Not in the exchange: shared values may be loaded in between.
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
        """Returns shared minus own values, for each variable of a group and local replica."""
        return [
            [value - own for value, own in zip(self._shared[i][0], self._own[i][0], strict=True)]
            for i in self._groups[group]
        ]

    def own_tensors(self, group: int) -> list[tf.Tensor]:
        """Returns the own values of a group's variables, for all local replicas."""
        return [own.read_value() for i in self._groups[group] for own in self._own[i][0]]

    def mix(self, group: int, share: float) -> None:
        """Sets own values of a group to `share * own + (1 - share) * shared`."""
        for i in self._groups[group]:
            for shared, own in zip(self._shared[i][0], self._own[i][0], strict=True):
                mixed = share * own + (1 - share) * shared if share else shared
                own.assign(mixed)

    def own_values(self) -> contextlib.AbstractContextManager[None]:
        """Context in which the variables stand for each replica's own values."""
        return self._standing_for(self._own)

    def shared_values(self) -> contextlib.AbstractContextManager[None]:
        """Context in which the variables stand for the shared values, as outside replicas."""
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
    """Part of a strategy's `extended` for replicas with own weights."""

    def _initialize_local_steps(self):
        self._local_weights = weakref.WeakSet()
        self._local_statistics = weakref.WeakValueDictionary()
        self._keeps_statistics = False
        self.message_guard = MessageGuard()

    def add_local_weights(self, weights: LocalWeights) -> None:
        """Registers own values of replicas, replacing earlier ones of the same variables."""
        self.end_local_weights(weights.variables)
        self._local_weights.add(weights)

    def end_local_weights(
        self, variables: Sequence[Any], kept: Sequence[LocalWeights] = ()
    ) -> None:
        """Drops the own values of these distributed variables, but for those to be `kept`."""
        for weights in set(self._local_weights).difference(kept):
            if weights.holds_any(variables):
                self._local_weights.discard(weights)

    @property
    def takes_local_steps(self) -> bool:
        """True if replicas have own values of any weights."""
        return bool(self._local_weights)

    def has_local_weights(self, weights: LocalWeights) -> bool:
        """True if these own values are registered."""
        return weights in self._local_weights

    @contextlib.contextmanager
    def _own_weights(self):
        """Context of a function of all replicas: in training they see their own weights."""
        with contextlib.ExitStack() as stack:
            for weights in () if evaluates() else self._local_weights:
                weights.begin_step()
                stack.enter_context(weights.own_values())
            yield

    def keep_statistics(self) -> None:
        """Keeps the batch-norm statistics of this run within the process."""
        self._keeps_statistics = True

    def average_statistics(self) -> None:
        """Gives all processes the mean of the batch-norm statistics since the last exchange."""
        written = list({**self._local_statistics, **self._written}.values())
        if written and self.process_group is not None:
            self._assign_means(written, self.process_group)

    def _end_run(self):
        """Gives all replicas the mean of the values that they wrote during the run."""
        written, self._written = list(self._written.values()), {}
        keeps, self._keeps_statistics = self._keeps_statistics, False
        if not written or self._num_replicas_in_sync == 1:
            return
        if tf.executing_eagerly():
            self._warn_of_means(written)
        group, shares = self.process_group, self.shares_of_run and self.shares_of_run()
        if keeps and group is not None:
            self._local_statistics.update((id(variable), variable) for variable in written)
            shares = shares and [share * group.size for share in shares]
            group = None
        self._assign_means(written, group, shares)


def held_optimizers(model: keras.Model) -> list[LocalStepsOptimizer]:
    """Returns the optimizers of local steps whose weights replicas train now.

    They are attributes of the model or its layers, also in lists and dicts.
    """
    extended = model.distribute_strategy.extended
    if not getattr(extended, "takes_local_steps", False):
        return []
    held = holders.held_by(model, keras.optimizers.Optimizer)
    found = [one for _, value in held if (one := local_steps_optimizer(value)) is not None]
    distinct = {id(one): one for one in found}.values()
    return [one for one in distinct if extended.has_local_weights(one.local_weights)]


@patch(keras.callbacks.CallbackList, "on_test_begin", "on_epoch_end")
def _synchronize_first(stock, self, *args, **kwargs):
    """Exchanges the changes of an epoch's last steps before evaluation and callbacks."""
    for optimizer in held_optimizers(self.model) if self.model else ():
        optimizer.synchronize()
    return stock(self, *args, **kwargs)

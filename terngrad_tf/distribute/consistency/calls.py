"""Agreements of a cluster's processes around `fit`, `evaluate` and `predict`, and in `fit`.

Before a call, processes compare its arguments and those of `compile`, and take the chief's weights
if they differ. During and after `fit`, they compare weights again.
"""

import base64
import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.common.places import places
from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication.coordination import all_gather_object
from terngrad_tf.distribute.communication.failures import peer_errors
from terngrad_tf.distribute.communication.peers import PeerError
from terngrad_tf.distribute.consistency.descriptions import (
    describe,
    describe_model,
    digest,
    flatten,
)
from terngrad_tf.distribute.consistency.digests import digest_of_all, gather_digests
from terngrad_tf.distribute.consistency.equalize import equalize_variables
from terngrad_tf.distribute.consistency.handshake import compare_processes
from terngrad_tf.distribute.consistency.settings import (
    Settings,
    differences,
    learning_rates,
    settings_of_arguments,
    settings_of_call,
)
from terngrad_tf.distribute.consistency.written_files import writing_to_files_of_chief
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer

# Steps between comparisons of weights, and least steps before one at an epoch's end.
_COMPARE_EVERY, _COMPARE_AT_LEAST = 500, 100


class Calls:
    """The calls of a strategy's models in this process.

    Attributes:
        left_out: callbacks that must not write here, since the chief's write to the same files.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._get_strategy = weakref.ref(strategy)
        self._model: Any = None
        self._method = ""
        # By model: its flat description and learning rates, as `compile` made them.
        self._layers = weakref.WeakKeyDictionary()
        self._rates = weakref.WeakKeyDictionary()
        self._compared_optimizers = weakref.WeakSet()
        self._steps = 0
        self.left_out: list[Any] = []

    @contextlib.contextmanager
    def around(
        self,
        method: str,
        model: keras.Model,
        arguments: Mapping[str, Any],
        is_validation: bool = False,
    ) -> Iterator:
        """Context of "fit", "evaluate" or "predict", with `arguments` by name.

        Raises PeerError for different arguments, or a lost process.

        Args:
            is_validation: True for the validation that `fit` calls.
        """
        if self._model is not None:
            if not is_validation:  # which the comparison for `fit` covers
                self._compare_inside(method, arguments)
            yield
            return
        with peer_errors(self._get_strategy().tasks):
            try:
                self._model, self._method = model, method
                with places.at(f"`{method}`"):
                    self._compare(arguments)
                    self._equalize()
                    if method == "fit":
                        self.left_out = writing_to_files_of_chief(
                            self._get_strategy(), arguments.get("callbacks")
                        )
                yield
                if method == "fit":
                    with places.at("the end of `fit`"):
                        self._equalize()
            finally:
                self._model, self.left_out = None, []

    @contextlib.contextmanager
    def step(self, method: str) -> Iterator[None]:
        """Context of a step of Keras' loop in a method."""
        place = f"a step of `{method}`"
        try:
            with places.at(place):
                yield
        except (tf.errors.OutOfRangeError, StopIteration):
            places.forget(place)
            raise

    def stepped(self, model: keras.Model, is_epoch_end: bool) -> None:
        """Called after each step of `fit` and each epoch."""
        if model is not self._model:
            return
        self._steps += not is_epoch_end
        # Local steps end an epoch with an exchange.
        least = _COMPARE_AT_LEAST if is_epoch_end else _COMPARE_EVERY
        if self._steps >= least and (is_epoch_end or _local_optimizer(model) is None):
            with places.at("a comparison of weights in `fit`"):
                self._equalize()

    def compiled(self, model: keras.Model) -> None:
        """Called at the end of `compile`."""
        self._layers.pop(model, None)
        self._rates[model] = learning_rates(model)

    def applied(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Called before an optimizer is applied; outside of `fit`, compares the optimizer once."""
        context, strategy = tf.distribute.get_replica_context(), self._get_strategy()
        if self._model is not None or context is None or context.strategy is not strategy:
            return
        if optimizer in self._compared_optimizers:
            return
        self._compared_optimizers.add(optimizer)
        with tf.init_scope():
            compare_processes(strategy, "optimizers", flatten(describe(optimizer)))
            _take_noise(strategy, private.noise_variables(optimizer))

    def _compare(self, arguments):
        """Compares all settings of a call; processes send them only if their digests differ."""
        model, method, strategy = self._model, self._method, self._get_strategy()
        if model not in self._layers:
            self._layers[model] = flatten(describe_model(model))
        layers, rates = self._layers[model], self._rates.get(model, {})
        settings = settings_of_call(method, model, arguments, layers, rates)
        digests = gather_digests(strategy, [digest([places.waits_at, settings])])
        if (digests != digests[0]).any():
            self._refuse_different(settings, lambda told: True)

    def _compare_inside(self, method, arguments):
        """Compares the arguments of a call in a callback, which only some processes may make.

        Not by an exchange, which the others, in a step, would take for their own.
        """
        place = f"`{method}` in a callback of `{self._method}`"
        with peer_errors(self._get_strategy().tasks), places.at(place):
            settings = settings_of_arguments(method, arguments)
            self._refuse_different(settings, lambda told: any(one != told[0] for one in told))

    def _refuse_different(
        self, settings: Settings, are_different: Callable[[list[Settings]], bool]
    ) -> None:
        """Gathers the settings of all processes; raises PeerError if they are different."""
        strategy = self._get_strategy()
        told = all_gather_object(strategy, "settings", settings, is_last=are_different)
        if are_different(told):
            lines = differences(told, strategy.tasks.names)
            raise PeerError(f"the processes' {'; '.join(lines)}")

    def _equalize(self):
        """Gives all processes the chief's variables if they differ, with a warning."""
        self._steps = 0
        # Statistics legitimately differ between exchanges.
        if not _is_between_exchanges(self._model):
            equalize_variables(self._get_strategy(), private.agreed_variables(self._model))


def _take_noise(strategy, variables):
    """Gives all processes the chief's averages of noise.

    Not in `optimizer.variables`, which a user's loop takes from the chief. Uses the coordination
    service, so a replica may call this.
    """
    if not variables:
        return
    copies = [private.local_tensors(variable.value) for variable in variables]
    content = b"".join(first.numpy().tobytes() for first, *_ in copies)
    digests = all_gather_object(strategy, "noise", digest_of_all([content]).hex())
    if len(set(digests)) == 1:
        return
    told = base64.b64encode(content).decode() if strategy.is_chief else None
    content = base64.b64decode(all_gather_object(strategy, "averages of noise", told)[0])
    values = np.frombuffer(content, np.float32)
    for of_variable in copies:
        shape = of_variable[0].shape
        value, values = np.split(values, [shape.num_elements()])
        for copy in of_variable:
            copy.assign(np.reshape(value, shape))


def _local_optimizer(model) -> Any:
    return local_steps_optimizer(getattr(model, "optimizer", None))


def _is_between_exchanges(model):
    local = _local_optimizer(model)
    return local is not None and local.built and bool(local.steps_since_exchange)

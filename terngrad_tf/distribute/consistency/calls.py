"""Agreements of a cluster's processes around `fit`, `evaluate` and `predict`, and in `fit`.

Before a call, processes compare its arguments and those of `compile`, and take the chief's weights
if they differ. During and after `fit`, they compare weights again.
"""

import base64
import contextlib
import json
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.common.places import places
from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication.coordination import all_gather_object
from terngrad_tf.distribute.communication.failures import peer_errors
from terngrad_tf.distribute.communication.peers import PeerError
from terngrad_tf.distribute.consistency.callback_settings import callback_settings
from terngrad_tf.distribute.consistency.descriptions import (
    describe,
    describe_model,
    digest,
    flatten,
)
from terngrad_tf.distribute.consistency.digests import digest_of_all, gather_digests
from terngrad_tf.distribute.consistency.equalize import equalize_variables
from terngrad_tf.distribute.consistency.handshake import compare_processes, diff
from terngrad_tf.distribute.consistency.written_files import files_of, writers
from terngrad_tf.distribute.steps.local_steps_optimizer import local_steps_optimizer

# Steps between comparisons of weights, and least steps before one at an epoch's end.
_COMPARE_EVERY, _COMPARE_AT_LEAST = 500, 100
_MOST_PHRASES = 3
# Of data, only the presence is compared.
_COMPARED = (
    "batch_size",
    "epochs",
    "initial_epoch",
    "steps_per_epoch",
    "steps",
    "shuffle",
    "class_weight",
    "validation_split",
    "validation_steps",
    "validation_batch_size",
    "validation_freq",
)
_GIVEN = ("y", "sample_weight", "validation_data")
_COMPILE_OPTIONS = ("run_eagerly", "steps_per_execution", "jit_compile")
_RATE = "learning_rate"


class Calls:
    """The calls of a strategy's models in this process.

    Attributes:
        left_out: callbacks that must not write here, since the chief's write to the same files.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._get_strategy = weakref.ref(strategy)
        self._model: Any = None
        self._method = ""
        self._models = weakref.WeakKeyDictionary()
        self._rates = weakref.WeakKeyDictionary()
        self._optimizers = weakref.WeakSet()
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
                    self._compare(_settings(self, method, model, arguments))
                    self._equalize()
                    if method == "fit":
                        self.left_out = self._writing_twice(arguments.get("callbacks"))
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
        if self._steps >= least and (is_epoch_end or not _is_local(model)):
            with places.at("a comparison of weights in `fit`"):
                self._equalize()

    def compiled(self, model: keras.Model) -> None:
        """Called at the end of `compile`."""
        self._models.pop(model, None)
        self._rates[model] = {k: v for k, v in _optimizers(model).items() if _is_rate(k, v)}

    def applied(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Called before an optimizer is applied; compares the optimizer once."""
        context, strategy = tf.distribute.get_replica_context(), self._get_strategy()
        if self._model is None and context is not None and context.strategy is strategy:
            if optimizer not in self._optimizers:
                self._optimizers.add(optimizer)
                with tf.init_scope():
                    settings = flatten(describe(optimizer))
                    compare_processes(strategy, "optimizers", settings)
                    _take_noise(strategy, private.noise_variables(optimizer))

    def described(self, model: keras.Model) -> Any:
        """Returns the model's description, created once per `compile`."""
        if model not in self._models:
            self._models[model] = flatten(describe_model(model))
        return self._models[model]

    def rates(self, model: keras.Model) -> dict[str, float]:
        """Returns the learning rates given to `compile`, by key."""
        return self._rates.get(model, {})

    def _compare(self, settings):
        strategy = self._get_strategy()
        digests = gather_digests(strategy, [digest([places.waits_at, settings])])
        if (digests == digests[0]).all():
            return
        told = all_gather_object(strategy, "settings", settings, is_last=lambda all_: True)
        raise _different(told, strategy.tasks)

    def _compare_inside(self, method, arguments):
        """Compares the arguments of a call in a callback, which only some processes may make.

        Not by an exchange, which the others, in a step, would take for their own.
        """
        strategy, settings = self._get_strategy(), _arguments(method, arguments)
        place = f"`{method}` in a callback of `{self._method}`"
        with peer_errors(strategy.tasks), places.at(place):
            told = all_gather_object(
                strategy, "settings", settings, is_last=lambda all_: any(a != all_[0] for a in all_)
            )
            if any(one != told[0] for one in told):
                raise _different(told, strategy.tasks)

    def _writing_twice(self, callbacks):
        """Returns this process's callbacks that would write to the chief's files."""
        strategy = self._get_strategy()
        digests = gather_digests(strategy, files_of(callbacks))
        is_same = (digests == digests[0]).all(axis=-1)[strategy.process_index]
        if strategy.is_chief:
            return []
        of_kinds = zip(writers(callbacks), is_same, strict=True)
        return [callback for of_kind, same in of_kinds if same for callback in of_kind]

    def _equalize(self):
        """Gives all processes the chief's variables if they differ, with a warning."""
        self._steps = 0
        # Statistics legitimately differ between exchanges.
        if not _is_local(self._model) or not _is_between_exchanges(self._model):
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


def _settings(calls, method, model, arguments):
    """Returns the settings that must be equal: `{section: {key: value}}`."""
    compiled = private.compiled_with(model)
    optimizers = _optimizers(model)
    # Current rates are variables, taken from the chief.
    optimizers |= {k: v for k, v in calls.rates(model).items() if _is_rate(k, optimizers.get(k))}
    return {
        "models": calls.described(model),
        "optimizers": optimizers,
        "losses": _flat({k: compiled.get(k) for k in ("loss", "loss_weights")})
        | _held(model, keras.losses.Loss),
        "metrics": _flat({k: compiled.get(k) for k in ("metrics", "weighted_metrics")})
        | _held(model, keras.metrics.Metric),
        "arguments of `compile`": _flat({k: compiled.get(k) for k in _COMPILE_OPTIONS}),
        "callbacks": callback_settings(arguments.get("callbacks")),
        **_arguments(method, arguments),
    }


def _arguments(method, arguments):
    given = {name: "given" for name in _GIVEN if arguments.get(name) is not None}
    compared = _flat({k: arguments[k] for k in _COMPARED if k in arguments})
    return {f"arguments of `{method}`": given | compared}


def _different(settings, tasks):
    lines = differences(settings, tasks.names)
    return PeerError(f"the processes' {'; '.join(lines)}")


def _optimizers(model):
    """Returns the options of all optimizers of a model, by key."""
    main = getattr(model, "optimizer", None)
    found = flatten(describe(main)) if isinstance(main, keras.optimizers.Optimizer) else {}
    return found | _held(model, keras.optimizers.Optimizer, but_for=main)


def _held(model, kind, but_for=None):
    """Returns options of a model's attributes of a kind, as from an overridden `compile`."""
    found = {}
    for name, value in sorted(vars(model).items()):
        if isinstance(value, kind) and value is not but_for:
            found |= flatten(describe(value), name)
    return found


def _flat(description):
    return flatten(describe(description))


def _is_rate(key, value):
    return key.rpartition(".")[2] == _RATE and isinstance(value, float)


def differences(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Returns one line for each differing section of the processes' `{section: {key: value}}`."""
    lines = []
    for section in settings[0]:
        each = [one[section] for one in settings]
        keys = set().union(*each)
        differ = {key for key in keys if len({_shown(one, key) for one in each}) > 1}
        # A missing object has no options either.
        different = sorted(key for key in differ if key.rpartition(".")[0] not in differ - {key})
        first = different[:_MOST_PHRASES]
        phrases = diff([{k: one[k] for k in first if k in one} for one in each], names)
        if phrases:
            more = [f"{len(different) - len(first)} more"] if len(different) > len(first) else []
            lines.append(f"{section} differ: {', '.join(phrases + more)}")
    return lines


def _shown(section, key):
    return json.dumps(section[key]) if key in section else None


def _is_local(model):
    return local_steps_optimizer(getattr(model, "optimizer", None)) is not None


def _is_between_exchanges(model):
    optimizer: Any = local_steps_optimizer(model.optimizer)
    return optimizer.built and bool(optimizer.steps_since_exchange)

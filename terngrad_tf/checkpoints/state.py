"""Collects and restores the variables of a model and its optimizer."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.checkpoints import local_state
from terngrad_tf.checkpoints.files import Description
from terngrad_tf.common.arguments import shown
from terngrad_tf.distribute import TernGradStrategy, local_steps_optimizer, private
from terngrad_tf.distribute.consistency.descriptions import describe_model, flatten
from terngrad_tf.distribute.local_sgd.replica_state import ReplicaState

# Suffix that Keras adds to repeated names.
_NUMBER = re.compile(r"_\d+(?=[/_]|$)")
_MODEL, _OPTIMIZER, _REPLICAS, _SUMS = "model", "optimizer", "replicas", "sums"
_MOST_TOLD = 3
_KINDS = {_REPLICAS: "steps (`DiLoCo`)", _SUMS: "accumulated gradients"}

_logger = logging.getLogger(__name__)


class ModelState:
    """The variables of a built model and its built optimizer.

    Shared variables are saved once, replicas' own variables (steps of `DiLoCo`, accumulated
    gradients) for all replicas.

    Attributes:
        layers: description of the model's layers.
    """

    def __init__(self, model: keras.Model) -> None:
        _warn_of_other_optimizers(model)
        self.layers = describe_model(model)
        self._strategy = strategy = model.distribute_strategy
        self._model = model
        optimizer = model.optimizer
        sums = private.accumulators_of(optimizer)
        local_state.keep_statistics(optimizer, model)
        is_sum = {id(variable) for variable in sums}
        of_optimizer = [v for v in local_state.shared_variables(optimizer) if id(v) not in is_sum]
        self._shared = _numbered(_MODEL, model_variables(model))
        self._shared |= _numbered(_OPTIMIZER, of_optimizer)
        self._own: dict[str, ReplicaState] = {}
        local = local_steps_optimizer(optimizer)
        if local is not None:
            self._own[_REPLICAS] = local.replica_state
        if sums:
            self._own[_SUMS] = ReplicaState(strategy, [variable.value for variable in sums])
        self._sums = sums

    @property
    def has_own(self) -> bool:
        """True if replicas have variables of their own."""
        return bool(self._own)

    def collect(self, saves: bool) -> tuple[dict[str, np.ndarray], dict[str, str]] | None:
        """Returns arrays and variables' paths by key, or None if not `saves`.

        All processes of a cluster call this together.
        """
        local_state.exchange_to_save(self._model.optimizer)
        for state in self._own.values():
            state.gather(saves)
        try:
            if not saves:
                return None
            arrays = {k: tf.convert_to_tensor(v).numpy() for k, v in self._shared.items()}
            paths = {key: variable.path for key, variable in self._shared.items()}
            for kind, state in self._own.items():
                for number, array in enumerate(state.get()):
                    arrays[f"{kind}.{number}"] = array
                    paths[f"{kind}.{number}"] = ""
            return arrays, paths
        finally:
            for state in self._own.values():
                state.forget()

    def not_finite(self) -> str | None:
        """Returns the path of the first non-finite variable, or None."""
        return first_not_finite(self._shared.values())

    def check(self, description: Description, arrays: Mapping[str, np.ndarray]) -> None:
        """Raises ValueError unless a checkpoint fits model and optimizer."""
        _check_same(self._shared, description, arrays, (_MODEL, _OPTIMIZER), "model and optimizer")
        kinds = {key.partition(".")[0] for key in arrays} - {_MODEL, _OPTIMIZER}
        if kinds != set(self._own):
            raise ValueError(
                f"{description.path} is of another optimizer: of each replica's own it holds"
                f" {_told_kinds(kinds)} where {_told_kinds(self._own)} is expected"
            )

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Assigns a checkpoint's arrays, the same on every process of a cluster."""
        assign(self._shared, arrays)
        first = _first_replica(self._strategy)
        for kind, state in self._own.items():
            rows = _of_kind(arrays, kind)
            state.set(self._shared_out(rows) if kind == _SUMS else rows, first)

    def _shared_out(self, rows):
        """Returns one sum per replica; if their number changed, the first gets the total."""
        count = self._strategy.num_replicas_in_sync
        if not rows or len(rows[0]) == count:
            return rows
        return [
            np.concatenate(
                [row.sum(0, keepdims=True), np.zeros((count - 1, *row.shape[1:]), row.dtype)]
            )
            for row in rows
        ]


def model_variables(model: keras.Model) -> list[keras.Variable]:
    """Returns all variables of a model: weights, statistics, states and random seeds."""
    return model.trainable_variables + model.non_trainable_variables


def first_not_finite(variables: Iterable[keras.Variable]) -> str | None:
    """Returns the path of the first non-finite variable, or None."""
    for variable in variables:
        value = tf.convert_to_tensor(variable)
        if value.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(value)):
            return variable.path
    return None


def load_weights(
    model: keras.Model, description: Description, arrays: Mapping[str, np.ndarray]
) -> None:
    """Gives a model a checkpoint's weights, without the optimizer's state.

    Raises:
        ValueError: the checkpoint is of another model.
    """
    variables = _numbered(_MODEL, model_variables(model))
    _check_same(variables, description, arrays, (_MODEL,), "model")
    warn_of_other_options(describe_model(model), description)
    assign(variables, arrays)


def warn_of_other_options(layers: Any, description: Description) -> None:
    """Warns if a checkpoint's model had other layers or options, which its variables do not show.

    Options that only one of them has are left out: releases of Keras add some.

    Args:
        layers: description of the present model by `describe_model`.
        description: the checkpoint's.
    """
    if description.model is None:
        return
    here, there = flatten(layers), flatten(description.model)
    differ = [
        f"{key} is {_told_option(there, key)} there and {_told_option(here, key)} here"
        for key in here | there
        if here.get(key) != there.get(key)
        and (key.endswith(".class") or (key in here and key in there))
    ]
    if differ:
        more = [f"{len(differ) - _MOST_TOLD} more"] if len(differ) > _MOST_TOLD else []
        told = ", ".join(differ[:_MOST_TOLD] + more)
        _logger.warning("%s is of a model with other options: %s", description.path, told)


def _warn_of_other_optimizers(model):
    """Warns if optimizers are held as attributes, of which Keras tells no variables."""
    main, kind = model.optimizer, keras.optimizers.Optimizer
    holders = {"": model}
    # The parts of `LossScaleOptimizer` and `DiLoCo` are saved.
    is_whole = isinstance(main, keras.optimizers.LossScaleOptimizer)
    if not is_whole and local_steps_optimizer(main) is None:
        holders["optimizer."] = main
    names = [
        prefix + name
        for prefix, holder in holders.items()
        for name, value in vars(holder).items()
        for part in (value if isinstance(value, list | tuple) else [value])
        if isinstance(part, kind) and part is not main
    ]
    if names:
        told = ", ".join(sorted({*names}))
        _logger.warning("not saved: %s; a resumed run differs, with these at their start", told)


def assign(variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Gives variables the arrays with the same keys."""
    for key, variable in variables.items():
        variable.assign(arrays[key])


def _numbered(kind, variables):
    return {f"{kind}.{number}": variable for number, variable in enumerate(variables)}


def _of_kind(arrays, kind):
    numbers = sorted(int(k.partition(".")[2]) for k in arrays if k.partition(".")[0] == kind)
    return [arrays[f"{kind}.{number}"] for number in numbers]


def _first_replica(strategy: Any) -> int:
    if not isinstance(strategy, TernGradStrategy):
        return 0
    return strategy.process_index * (strategy.num_replicas_in_sync // strategy.num_processes)


def _check_same(variables, description, arrays, kinds, what):
    saved = {k: path for k, path, _ in description.layout if k.partition(".")[0] in kinds}
    for key in [*variables, *saved]:
        here = _told(variables, key, lambda v: v.path, lambda v: tuple(v.shape))
        there = _told(saved, key, lambda path: path, lambda _, key=key: arrays[key].shape)
        if _without_numbers(here) != _without_numbers(there):
            raise ValueError(
                f"{description.path} is of another {what}: it holds {there} where"
                f" {here} is expected"
            )


def _told_option(options, key):
    return shown(options[key]) if key in options else "missing"


def _told(variables: Mapping[str, Any], key: str, path: Callable, shape: Callable) -> str:
    if key not in variables:
        return "nothing"
    return f"{shown(path(variables[key]))} of shape {shape(variables[key])}"


def _told_kinds(kinds):
    return " and ".join(_KINDS.get(kind, shown(kind)) for kind in sorted(kinds)) or "nothing"


def _without_numbers(told):
    name, of_shape, shape = told.partition(" of shape ")
    return _NUMBER.sub("", name.strip("'")) + of_shape + shape

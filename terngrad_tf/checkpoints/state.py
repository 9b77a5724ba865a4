"""Collects and restores the variables of a model and of the optimizers that it holds."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.checkpoints import held, keys, local_state
from terngrad_tf.checkpoints.comparison import check_same, kind_of, warn_of_other_options
from terngrad_tf.checkpoints.files import Description
from terngrad_tf.common.arguments import shown
from terngrad_tf.distribute import TernGradStrategy, local_steps_optimizer, private
from terngrad_tf.distribute.consistency.descriptions import describe_model
from terngrad_tf.distribute.local_sgd.replica_state import ReplicaState

_TOLD = {
    keys.REPLICAS: "steps (`DiLoCo`)",
    keys.SUMS: "accumulated gradients",
    keys.OWN: "variables of TensorFlow",
}

_logger = logging.getLogger(__name__)


class ModelState:
    """The variables of a model, of its optimizer, and of what else the model holds.

    Shared variables are saved once, replicas' own variables (steps of `DiLoCo`, accumulated
    gradients) for all replicas.

    Attributes:
        layers: description of the model's layers.
        trained: for each optimizer the keys of the weights that it was built for, None for one that
            the model does not hold; None in place of the list if it is not built.
    """

    def __init__(self, model: keras.Model) -> None:
        self.layers = describe_model(model)
        self._model = model
        self._strategy: Any = model.distribute_strategy
        self._ids = keys.ids(model)
        self._optimizers = optimizers = held.optimizers_of(model)
        self._has_warned = False
        found = [v.value for one in optimizers.values() for v in private.accumulators_of(one)]
        # Those of a `MultiOptimizer` are of its parts, too.
        accumulators = [*{id(v): v for v in found}.values()]
        self._shared = keys.weights(model) | keys.of_optimizers(optimizers, model, accumulators)
        self.trained = [keys.trained_by(one, self._shared) for one in optimizers.values()]
        found = map(local_steps_optimizer, optimizers.values())
        self._local = {id(one): one for one in found if one is not None and one.built}
        self._own = self._states_of_replicas(accumulators)

    def _states_of_replicas(self, accumulators):
        """Returns the states of variables of which each replica has its own, by kinds of keys."""
        states = {}
        for number, local in enumerate(self._local.values()):
            local_state.keep_statistics(local, self._model)
            states[keys.REPLICAS + (f"_{number}" if number else "")] = local.replica_state
        variables = held.variables_of(self._model).values()
        own = [variable for variable in variables if not keys.is_shared(variable)]
        sums = [v for v in own if v.aggregation == tf.VariableAggregation.SUM]
        others = [v for v in own if v.aggregation != tf.VariableAggregation.SUM]
        others += held.generator_states_of(self._model).values()
        for kind, of_replicas in ((keys.SUMS, [*accumulators, *sums]), (keys.OWN, others)):
            if of_replicas:
                states[kind] = ReplicaState(self._strategy, of_replicas)
        return states

    @property
    def is_current(self) -> bool:
        """False if the model or its optimizers got variables since."""
        return self._ids == keys.ids(self._model)

    @property
    def has_own(self) -> bool:
        """True if replicas have variables of their own."""
        return bool(self._own)

    def collect(self, saves: bool) -> tuple[dict[str, np.ndarray], dict[str, str]] | None:
        """Returns arrays and variables' paths by key, or None if not `saves`.

        All processes of a cluster call this together.
        """
        for local in self._local.values():
            local_state.exchange_to_save(local)
        for state in self._own.values():
            state.gather(saves)
        try:
            if not saves:
                return None
            self._warn_once()
            arrays = {
                key: tf.convert_to_tensor(saved.variable).numpy()
                for key, saved in self._shared.items()
            }
            paths = {key: saved.path for key, saved in self._shared.items()}
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
        # What users keep in TensorFlow's variables may be infinite, such as the best loss so far.
        shared = self._shared.items()
        return first_not_finite(v.variable for key, v in shared if kind_of(key) != keys.VARIABLES)

    def check(self, description: Description, arrays: Mapping[str, np.ndarray]) -> None:
        """Raises ValueError unless a checkpoint fits model and optimizers."""
        expected, own = self._shared, set(self._own)
        if description.trained is None:
            expected = {k: v for k, v in expected.items() if kind_of(k) not in keys.HELD}
            own -= {*keys.HELD}
            missing = [v.path for k, v in self._shared.items() if kind_of(k) in keys.HELD]
            if missing:
                rule = "%s is older and lacks %s and so on: they begin at their start"
                _logger.warning(rule, description.path, missing[0])
        check_same(expected, description, arrays, keys.SHARED, "model and optimizer")
        kinds = {kind_of(key) for key in arrays} - {*keys.SHARED}
        if kinds != own:
            raise ValueError(
                f"{description.path} is of another optimizer: of each replica's own it holds"
                f" {_told_kinds(kinds)} where {_told_kinds(own)} is expected"
            )

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Assigns a checkpoint's arrays, the same on every process of a cluster."""
        _assign(self._shared, arrays)
        first = _first_replica(self._strategy)
        for kind, state in self._own.items():
            rows = _of_kind(arrays, kind)
            if rows or kind not in keys.HELD:
                state.set(self._shared_out(rows) if kind == keys.SUMS else rows, first)

    def _warn_once(self):
        """Warns of what steps use and no checkpoint holds."""
        if self._has_warned:
            return
        self._has_warned = True
        known = {id(v) for one in self._optimizers.values() for v in one.variables}
        used = private.optimizers_used_by(self._model)
        missing = {
            f"optimizer {one.name!r}"
            for one in used
            if not known.issuperset(map(id, one.variables))
        }
        missing |= {
            f"weights that `{place}` trains"
            for place, trained in zip(self._optimizers, self.trained, strict=True)
            if None in (trained or ())
        }
        if missing:
            rule = "not saved: %s, which no attribute of the model holds; a resumed run differs"
            _logger.warning(rule, " and ".join(sorted(missing)))
        if others := held.not_numbers_of(self._model):
            rule = "not saved: %s; a checkpoint holds `tf.Variable`s of real numbers and bools only"
            _logger.warning(rule, " and ".join(others))

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
    description, arrays = keys.renumbered(model, description, arrays)
    variables = keys.weights(model)
    if description.trained is None:
        variables = {k: v for k, v in variables.items() if kind_of(k) not in keys.HELD}
    # A model to evaluate may lack what training keeps beside the weights.
    kinds = {keys.MODEL, *map(kind_of, variables)}
    check_same(variables, description, arrays, kinds, "model")
    warn_of_other_options(describe_model(model), description)
    _assign(variables, arrays)


def _assign(variables, arrays):
    """Gives variables the arrays with the same keys."""
    for key, saved in variables.items():
        if key in arrays:
            saved.variable.assign(arrays[key])


def _of_kind(arrays, kind):
    numbers = sorted(int(key.partition(".")[2]) for key in arrays if kind_of(key) == kind)
    return [arrays[f"{kind}.{number}"] for number in numbers]


def _first_replica(strategy: Any) -> int:
    if not isinstance(strategy, TernGradStrategy):
        return 0
    return strategy.process_index * (strategy.num_replicas_in_sync // strategy.num_processes)


def _told_kinds(kinds):
    return " and ".join(_TOLD.get(kind, shown(kind)) for kind in sorted(kinds)) or "nothing"

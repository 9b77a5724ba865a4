"""Names the variables of a model, and of what it holds, by their keys in a checkpoint."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.checkpoints import held, local_state
from terngrad_tf.checkpoints.comparison import Saved, kind_of, within_optimizer
from terngrad_tf.checkpoints.files import Description
from terngrad_tf.distribute import private

# Kinds of keys: variables that replicas share, then those of which each has its own.
MODEL, VARIABLES, OPTIMIZER, OPTIMIZERS = "model", "variables", "optimizer", "optimizers"
SHARED = (MODEL, VARIABLES, OPTIMIZER, OPTIMIZERS)
REPLICAS, SUMS, OWN = "replicas", "sums", "variables_of_replicas"
# Older files lack them.
HELD = (VARIABLES, OPTIMIZERS, OWN)


def weights(model: keras.Model) -> dict[str, Saved]:
    """Returns the variables of a model that replicas share, by key."""
    own = [Saved(variable.path, variable) for variable in model.variables]
    found = held.variables_of(model).items()
    others = [Saved(place, variable) for place, variable in found if is_shared(variable)]
    return _numbered(MODEL, own) | _numbered(VARIABLES, others)


def renumbered(
    model: keras.Model, description: Description, arrays: Mapping[str, np.ndarray]
) -> tuple[Description, dict[str, np.ndarray]]:
    """Returns a checkpoint with the model's variables in the order of `model.variables`.

    In older files trainable ones come first, so that their order depends on what is frozen.
    """
    variables = model.trainable_variables + model.non_trainable_variables
    before = {id(variable): f"{MODEL}.{number}" for number, variable in enumerate(variables)}
    names = {before[id(v)]: f"{MODEL}.{number}" for number, v in enumerate(model.variables)}
    saved = {key for key in arrays if kind_of(key) == MODEL}
    if description.trained is not None or saved != set(names):
        return description, dict(arrays)
    paths = {names.get(key, key): path for key, path in description.paths.items()}
    description = dataclasses.replace(description, paths=paths)
    return description, {names.get(key, key): array for key, array in arrays.items()}


def of_optimizers(
    optimizers: Mapping[str, keras.optimizers.Optimizer], model: keras.Model, sums: Sequence[Any]
) -> dict[str, Saved]:
    """Returns the variables of optimizers that replicas share, by key; `sums` are not shared."""
    known = {id(v) for v in [*sums, *(variable.value for variable in model.variables)]}
    found: dict[str, list[Saved]] = {OPTIMIZER: [], OPTIMIZERS: []}
    for place, optimizer in optimizers.items():
        kind = OPTIMIZER if place == OPTIMIZER else OPTIMIZERS
        prefix = "" if kind == OPTIMIZER else f"{place}/"
        # Their paths depend on whether a step or `build` made them.
        noise = {id(variable) for variable in private.noise_variables(optimizer)}
        for variable in local_state.shared_variables(optimizer):
            if id(variable.value) not in known:
                known.add(id(variable.value))
                path = variable.name if id(variable) in noise else within_optimizer(variable.path)
                found[kind].append(Saved(prefix + path, variable))
    return _numbered(OPTIMIZER, found[OPTIMIZER]) | _numbered(OPTIMIZERS, found[OPTIMIZERS])


def trained_by(
    optimizer: keras.optimizers.Optimizer, shared: Mapping[str, Saved]
) -> list[str | None] | None:
    """Returns the keys of the weights that an optimizer was built for, or None if it is not."""
    if not optimizer.built:
        return None
    keys = [key for key in shared if kind_of(key) in (MODEL, VARIABLES)]
    places = private.positions_of_trained(optimizer, [shared[key].variable for key in keys])
    return [None if place is None else keys[place] for place in places]


def is_shared(variable: tf.Variable) -> bool:
    """Returns True if replicas share a variable of TensorFlow."""
    return variable.synchronization != tf.VariableSynchronization.ON_READ


def ids(model: keras.Model) -> list[int]:
    """Returns what changes if a model or its optimizers get variables."""
    optimizers = held.optimizers_of(model).values()
    variables = [v for one in optimizers for v in local_state.shared_variables(one)]
    variables += model.variables + [*held.variables_of(model).values()]
    variables += held.generator_states_of(model).values()
    return [id(variable) for variable in variables]


def _numbered(kind, variables):
    return {f"{kind}.{number}": variable for number, variable in enumerate(variables)}

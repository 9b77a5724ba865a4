"""Finds what a model holds besides its variables: optimizers, and variables of TensorFlow."""

import itertools

import keras
import tensorflow as tf

from terngrad_tf.distribute import local_steps_optimizer, private


def optimizers_of(model: keras.Model) -> dict[str, keras.optimizers.Optimizer]:
    """Returns the optimizers of a model by their places; its own, if it has one, is the first.

    The others are attributes of the model, its layers or optimizers, also in lists and dicts.
    """
    found = list(private.held_by(model, keras.optimizers.Optimizer))
    main = getattr(model, "optimizer", None)
    if main is not None:
        found = [("optimizer", main), *((p, one) for p, one in found if one is not main)]
    parts = []
    for place, optimizer in found:
        # The variables of `LossScaleOptimizer` and `DiLoCo` are those of their parts, too.
        is_whole = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if not is_whole and local_steps_optimizer(optimizer) is None:
            parts += private.parts_of(optimizer, keras.optimizers.Optimizer, f"{place}.")
    return _distinct([*found, *parts])


def variables_of(model: keras.Model) -> dict[str, tf.Variable]:
    """Returns TensorFlow's variables, of which Keras does not know, by their places.

    They are attributes of the model or its layers, also in lists and dicts. See `not_numbers_of`
    for those that are left out.
    """
    found = _distinct(private.held_by(model, tf.Variable)).items()
    return {place: variable for place, variable in found if _holds_numbers(variable)}


def not_numbers_of(model: keras.Model) -> list[str]:
    """Returns the places of TensorFlow's variables that no checkpoint can hold, such as texts."""
    found = _distinct(private.held_by(model, tf.Variable)).items()
    return [place for place, variable in found if not _holds_numbers(variable)]


def generator_states_of(model: keras.Model) -> dict[str, tf.Variable]:
    """Returns the states of `tf.random.Generator`s that are attributes, by their places."""
    generators = _distinct(private.held_by(model, tf.random.Generator))
    return {place: generator.state for place, generator in generators.items()}


def layers_not_built(model: keras.Model) -> list[str]:
    """Returns the names of layers whose variables are not known yet."""
    layers = private.layers_of(model)
    # A model without a `call` is never built; its layers are.
    return [v.name for v in layers if not v.built and type(v).call is not keras.Model.call]


def _holds_numbers(variable):
    dtype = variable.dtype
    return dtype.is_floating or dtype.is_integer or dtype.is_bool


def _distinct(found):
    """Returns values by their places, each value once; layers may share their names."""
    known, distinct = set(), {}
    for place, value in found:
        if id(value) in known:
            continue
        known.add(id(value))
        others = (f"{place}_{number}" for number in itertools.count(1))
        free = next(name for name in itertools.chain([place], others) if name not in distinct)
        distinct[free] = value
    return distinct

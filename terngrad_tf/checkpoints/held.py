"""Finds what a model holds besides its variables: optimizers, and variables of TensorFlow."""

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import local_steps_optimizer, private

# Of TensorFlow's own tracking.
_TRACKING = "_self_"


def optimizers_of(model: keras.Model) -> dict[str, keras.optimizers.Optimizer]:
    """Returns the optimizers of a model by their places; its own, if it has one, is the first.

    The others are attributes of the model, its layers or optimizers, also in lists and dicts.
    """
    found = dict(_attributes(model, keras.optimizers.Optimizer))
    main = getattr(model, "optimizer", None)
    rest = {place: one for place, one in found.items() if one is not main}
    ordered = ({} if main is None else {"optimizer": main}) | rest
    for place, optimizer in list(ordered.items()):
        # The variables of `LossScaleOptimizer` and `DiLoCo` are those of their parts, too.
        is_whole = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if not is_whole and local_steps_optimizer(optimizer) is None:
            ordered |= dict(_parts_of(optimizer, keras.optimizers.Optimizer, f"{place}."))
    return _distinct(ordered)


def variables_of(model: keras.Model) -> dict[str, tf.Variable]:
    """Returns TensorFlow's variables, of which Keras does not know, by their places.

    They are attributes of the model or its layers, also in lists and dicts.
    """
    return _distinct(dict(_attributes(model, tf.Variable)))


def generator_states_of(model: keras.Model) -> dict[str, tf.Variable]:
    """Returns the states of `tf.random.Generator`s that are attributes, by their places."""
    generators = _distinct(dict(_attributes(model, tf.random.Generator)))
    return {place: generator.state for place, generator in generators.items()}


def layers_not_built(model: keras.Model) -> list[str]:
    """Returns the names of layers whose variables are not known yet."""
    layers = private.layers_of(model)
    # A model without a `call` is never built; its layers are.
    return [v.name for v in layers if not v.built and type(v).call is not keras.Model.call]


def _attributes(model, kind) -> Iterator[tuple[str, Any]]:
    for layer in private.layers_of(model):
        yield from _parts_of(layer, kind, "" if layer is model else f"{layer.name}/")


def _parts_of(holder, kind, place):
    # Users' names before those of Keras and TensorFlow, which list the same objects again.
    for name in sorted(vars(holder), key=lambda name: (name.startswith("_"), name)):
        if not name.startswith(_TRACKING):
            yield from _parts(vars(holder)[name], kind, place + name)


def _parts(value, kind, place):
    if isinstance(value, kind):
        yield place, value
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _parts(part, kind, f"{place}.{number}")
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _parts(part, kind, f"{place}.{name}")


def _distinct(found):
    known = set()
    return {k: v for k, v in found.items() if not (id(v) in known or known.add(id(v)))}

"""Finds values that a model or another object holds."""

from collections.abc import Iterator
from typing import Any

import keras

# Of TensorFlow's own tracking.
_TRACKING = "_self_"


def layers_of(model: keras.Layer) -> list[keras.Layer]:
    """Returns a model, or a layer, and all layers in it."""
    return list(model._flatten_layers())


def layers_in_order(layer: keras.Layer) -> list[keras.Layer]:
    """Returns a layer and all layers in it, each before its own, in the order of `layers`.

    `layers_of` turns the order of the layers within a layer around.
    """
    found, pending = {}, [layer]
    while pending:
        first = pending.pop()
        if id(first) not in found:
            found[id(first)] = first
            pending += reversed(first._flatten_layers(include_self=False, recursive=False))
    return list(found.values())


def held_by(model: keras.Model, kind: type) -> Iterator[tuple[str, Any]]:
    """Yields (place, value) of values of a kind that are attributes of a model or its layers.

    Also in lists and dicts. A value may occur several times.
    """
    for layer in layers_of(model):
        yield from parts_of(layer, kind, "" if layer is model else f"{layer.name}/")


def parts_of(holder: Any, kind: type, place: str) -> Iterator[tuple[str, Any]]:
    """Yields (place, value) of values of a kind that are attributes of an object.

    Args:
        place: that of the object, with which each place begins.
    """
    found = {
        name: value
        for name, value in vars(holder).items()
        if _may_hold(value, kind) and not name.startswith(_TRACKING)
    }
    # Users' names before those of Keras and TensorFlow, which list the same objects again.
    for name in sorted(found, key=lambda name: (name.startswith("_"), name)):
        yield from _parts(found[name], kind, place + name)


def _parts(value, kind, place):
    if isinstance(value, kind):
        yield place, value
    elif isinstance(value, list | tuple | dict):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            if _may_hold(part, kind):
                yield from _parts(part, kind, f"{place}.{name}")


def _may_hold(value, kind):
    """Returns False for most values quickly, such as the words of a vocabulary."""
    return isinstance(value, (list, tuple, dict, kind))

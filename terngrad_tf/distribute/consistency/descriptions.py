"""Describes the arguments of Keras by values that JSON can hold, so that processes compare them.

Paths, and names, which Keras numbers, may differ. Code is described by its name and constants.
"""

import collections
import functools
import hashlib
import inspect
import json
import math
import os
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Deeper configurations contain themselves.
_MOST_LEVELS = 20
_DIGITS = 12
# Locations of classes; shapes of batches differ by process.
_LEFT_OUT = (
    "name",
    "module",
    "registered_name",
    "shared_object_id",
    "build_config",
    "build_input_shape",
    "batch_shape",
    "shape",
)


def describe(value: Any) -> Any:
    """Describes a value by None, bool, int, float, str, list and dict; equal for equal values.

    Objects with `get_config` are described by their configurations, functions by names and
    constants, other objects by their classes.

    Example:
    >>> describe(keras.regularizers.L2(0.5))
    {'class': 'L2', 'l2': 0.5}
    """
    return _replaced(_describe(value), {})


def _describe(value, level=0):
    """Like `describe`, with the names of layers, at a level of nesting."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return _short(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return "a path" if os.sep in value else value
    if level > _MOST_LEVELS:
        return type(value).__name__
    within = functools.partial(_describe, level=level + 1)
    if isinstance(value, np.generic):
        return within(value.item())
    if isinstance(value, np.ndarray):
        content = "" if value.dtype.hasobject else f" {_digest(value.tobytes())}"
        return f"{value.dtype} {list(value.shape)}{content}"
    if isinstance(value, tf.Variable | keras.Variable | tf.Tensor):
        return f"{tf.as_dtype(value.dtype).name} {value.shape}"
    if isinstance(value, Mapping):
        return _describe_mapping(value, within)
    if isinstance(value, set | frozenset):
        return sorted((within(element) for element in value), key=repr)
    if isinstance(value, list | tuple):
        return [within(element) for element in value]
    if isinstance(value, functools.partial):
        return [within(value.func), within(value.args), within(value.keywords)]
    if isinstance(value, type):
        return value.__qualname__
    if inspect.isroutine(value):
        return _describe_function(value)
    return _describe_object(value, within)


def flatten(description: Any, key: str = "") -> dict[str, Any]:
    """Returns the parts of a description by key, such as {"inner.momentum": 0.9}.

    Example:
    >>> flatten({"units": [4, 1]})
    {'units.0': 4, 'units.1': 1}
    """
    if not isinstance(description, dict | list) or not description:
        return {key: description}
    items: Iterable = (
        description.items() if isinstance(description, dict) else enumerate(description)
    )
    parts = {}
    for name, part in items:
        parts |= flatten(part, f"{key}.{name}" if key else str(name))
    return parts


def digest(description: Any) -> bytes:
    """Returns 16 bytes that identify a description."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).digest()[:16]


def describe_model(model: keras.Model) -> Any:
    """Describes the layers of a model, their connections and options."""
    return _numbered(_describe(_ModelConfig(model)))


class _ModelConfig:
    """A model whose configuration contains its layers, also if it is subclassed."""

    def __init__(self, model):
        self._model = model

    def get_config(self):
        model = self._model
        try:
            config = model.get_config()
        except Exception:  # in a user's `get_config`
            config = None
        if isinstance(config, Mapping) and "layers" in config:
            return {"model": type(model).__name__, **config}
        layers = [_ModelConfig(v) if isinstance(v, keras.Model) else v for v in model.layers]
        return {"model": type(model).__name__, "config": config, "layers": layers}


def _short(value):
    """Returns 0.1 for the float32 nearest to 0.1, and so on."""
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return float(str(single)) if float(single) == value else value


def _describe_mapping(value, within):
    kind = value.get("class_name")
    if kind == "__lambda__":
        return "a lambda"  # Keras' configuration of a lambda contains paths
    if not isinstance(kind, str) or "config" not in value:
        return {str(k): within(v) for k, v in value.items() if k not in _LEFT_OUT}
    config = value["config"]
    name = config.get("name") if isinstance(config, Mapping) else None
    if kind.endswith("DTypePolicy"):
        return name
    if kind == "SeedGenerator":
        return kind  # its seed is random unless given
    rest = {k: v for k, v in value.items() if k not in ("class_name", "config")}
    described = within(config)
    described = described if isinstance(described, dict) else {"config": described}
    named = {_NAME: name} if isinstance(name, str) else {}
    return {"class": kind, **named, **described, **within(rest)}


# A layer's name in its model's configuration.
_NAME = "its name"
_INPUT = "InputLayer"


def _numbered(description):
    """Returns a model's description with numbers in place of the layers' names.

    Inputs are left out: a model built by its data has none before.
    """
    numbers, counts = {}, collections.Counter()
    for layer in _layers(description):
        kind = "input" if layer["class"] == _INPUT else "layer"
        if layer[_NAME] not in numbers:
            numbers[layer[_NAME]] = f"{kind} {counts[kind]}"
            counts[kind] += 1

    return _replaced(description, numbers)


def _replaced(part, numbers):
    """Replaces texts in a description, and removes the names of layers."""
    if isinstance(part, dict):
        return {key: _replaced(value, numbers) for key, value in part.items() if key != _NAME}
    if isinstance(part, list):
        return [_replaced(value, numbers) for value in part if not _is_input(value)]
    return numbers.get(part, part) if isinstance(part, str) else part


def _is_input(part):
    return isinstance(part, dict) and part.get("class") == _INPUT


def _layers(description) -> Iterator[dict]:
    if isinstance(description, dict):
        if _NAME in description:
            yield description
        description = list(description.values())
    if isinstance(description, list):
        for part in description:
            yield from _layers(part)


def _describe_object(value, within):
    name = type(value).__name__
    # Subspace optimizers have files that only some processes know.
    get_config = getattr(value, "shared_config", getattr(value, "get_config", None))
    if get_config is None:
        return name
    try:
        config = get_config()
    except Exception:  # in a user's `get_config`, or not implemented
        return name
    if not isinstance(config, Mapping):
        return name
    return {"class": name, **within(config)}


def _describe_function(value):
    name = getattr(value, "__qualname__", type(value).__name__)
    value = getattr(value, "__func__", value)
    code = getattr(value, "__code__", None)
    if not isinstance(code, types.CodeType):
        return name
    constants = sorted(map(repr, _constants(code)))
    constants += [repr(default) for default in value.__defaults__ or () if _is_constant(default)]
    try:
        closure = inspect.getclosurevars(value)
    except ValueError:  # a variable is not assigned yet
        return name
    for variables in (closure.nonlocals, closure.globals):
        # Integers and flags may identify this process.
        constants += [f"{k}={v!r}" for k, v in sorted(variables.items()) if isinstance(v, float)]
    if not constants:
        return name
    return f"{name} with constants {_digest(json.dumps(constants).encode())}"


def _constants(code):
    """Yields numbers and texts in a function and its inner functions."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _constants(constant)
        elif _is_constant(constant):
            yield constant


def _is_constant(value):
    return isinstance(value, float | int | str) and not isinstance(value, bool)


def _digest(content):
    return hashlib.sha256(content).hexdigest()[:_DIGITS]

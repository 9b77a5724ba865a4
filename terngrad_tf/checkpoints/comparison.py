"""Compares a checkpoint with the model that is to continue from it."""

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from terngrad_tf.checkpoints.files import Description
from terngrad_tf.common.arguments import shown
from terngrad_tf.distribute.consistency.descriptions import flatten

# Suffix that Keras adds to repeated names.
_NUMBER = re.compile(r"_\d+(?=[/_]|$)")
_MOST_TOLD = 3

_logger = logging.getLogger(__name__)


class Saved(NamedTuple):
    """A variable that a checkpoint holds, and its path there."""

    path: str
    variable: Any


def kind_of(key: str) -> str:
    """Returns the kind of a key, such as "model" of "model.3"."""
    return key.partition(".")[0]


def check_same(
    variables: Mapping[str, Saved],
    description: Description,
    arrays: Mapping[str, np.ndarray],
    kinds: Collection[str],
    what: str,
) -> None:
    """Raises ValueError unless the arrays of some kinds are of these variables.

    Args:
        variables: those of the kinds, by key.
        what: what a checkpoint of other variables is of.
    """
    here = {key: (v.path, _shape(v.variable, arrays.get(key))) for key, v in variables.items()}
    saved = {key: path for key, path in description.paths.items() if kind_of(key) in kinds}
    there = {key: (path, arrays[key].shape) for key, path in saved.items()}
    for key in [*here, *there]:
        one, other = there.get(key), here.get(key)
        if _comparable(key, one) != _comparable(key, other):
            raise ValueError(
                f"{description.path} is of another {what}: it holds {_told(one)} where"
                f" {_told(other)} is expected"
            )


def within_optimizer(path: str) -> str:
    """Returns the path of an optimizer's variable without the scopes of the step that made it."""
    return "/".join(path.split("/")[-2:])


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


def _shape(variable, array):
    """Returns a variable's shape; that of the array where the variable takes several."""
    shape = tf.TensorShape(variable.shape)
    takes = array is not None and shape.is_compatible_with(array.shape)
    return array.shape if takes else shape


def _told_option(options, key):
    return shown(options[key]) if key in options else "missing"


def _told(found):
    return "nothing" if found is None else f"{shown(found[0])} of shape {found[1]}"


def _comparable(key, found):
    if found is None:
        return None
    path, shape = found
    path = within_optimizer(path) if kind_of(key) == "optimizer" else path
    return _NUMBER.sub("", path), shape

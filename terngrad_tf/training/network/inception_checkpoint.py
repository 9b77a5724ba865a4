"""Inception-v3 as saved by TensorFlow 1: the checkpoint `inception-v3-2016-03-01` and similar ones.

Such a checkpoint has TensorFlow's first format (one file, no ".index") or its second, and no
description of the run. Variables have the names of the 2016 inception library: `conv0/weights`,
`conv0/BatchNorm/beta`, `mixed_35x35x256a/branch5x5/Conv_1/weights`, `logits/logits/biases`.
Suffixes mark moving averages (`.../ExponentialMovingAverage`) and the state of RMSProp, if kept.
"""

import re
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.training.errors import UserError
from terngrad_tf.training.network import networks
from terngrad_tf.training.optimization.statistics_average import StatisticsAverage
from terngrad_tf.training.storage import checkpoints

NET = "inception_v3"
# Such checkpoints are recognized by these.
_FIRST = "conv0/weights"
_LOGITS = "logits/logits/weights"
_AUXILIARY = "aux_logits/Conv/weights"

_AVERAGE = "/ExponentialMovingAverage"
# Mean square and accumulated step, in the order of creation.
_SLOTS = ("/RMSProp", "/RMSProp_1")

_VARIABLES = {
    "kernel": "weights",
    "bias": "biases",
    "beta": "BatchNorm/beta",
    "moving_mean": "BatchNorm/moving_mean",
    "moving_variance": "BatchNorm/moving_variance",
}
_OUTER = {
    **{f"conv{i + 1}": f"conv{i}" for i in range(5)},
    "aux_conv1": "aux_logits/proj",
    "aux_conv2": "aux_logits/Conv",
    "aux_logits": "aux_logits/FC",
    "logits": "logits/logits",
}
_ONE, _FORK = ("1",), ("row", "column")
_TWO, _THREE, _FOUR, _FIVE = ("1", "2"), ("1", "2", "3"), tuple("1234"), tuple("12345")
# Groups of equal modules: {ours: theirs}, and the convolutions of each branch. Their scopes have
# equal names, numbered by creation.
_MODULES = (
    (
        {"5b": "35x35x256a", "5c": "35x35x288a", "5d": "35x35x288b"},
        (("branch1x1", _ONE), ("branch5x5", _TWO), ("branch3x3dbl", _THREE), ("branch_pool", _ONE)),
    ),
    ({"6a": "17x17x768a"}, (("branch3x3", _ONE), ("branch3x3dbl", _THREE))),
    (
        {f"6{letter}": f"17x17x768{letter}" for letter in "bcde"},
        (
            ("branch1x1", _ONE),
            ("branch7x7", _THREE),
            ("branch7x7dbl", _FIVE),
            ("branch_pool", _ONE),
        ),
    ),
    ({"7a": "17x17x1280a"}, (("branch3x3", _TWO), ("branch7x7x3", _FOUR))),
    (
        {"7b": "8x8x2048a", "7c": "8x8x2048b"},
        (
            ("branch1x1", _ONE),
            ("branch3x3", (*_ONE, *_FORK)),
            ("branch3x3dbl", (*_TWO, *_FORK)),
            ("branch_pool", _ONE),
        ),
    ),
)


def scopes() -> dict[str, str]:
    """Returns {layer of `models.build("inception_v3")`: its scope in a checkpoint}.

    Example:
        >>> scopes()["mixed_5b_branch1_2"]
        'mixed_35x35x256a/branch5x5/Conv_1'
    """
    found = dict(_OUTER)
    for modules, branches in _MODULES:
        for own, other in modules.items():
            for number, (branch, convs) in enumerate(branches):
                for place, conv in enumerate(convs):
                    scope = "Conv" if place == 0 else f"Conv_{place}"
                    found[f"mixed_{own}_branch{number}_{conv}"] = f"mixed_{other}/{branch}/{scope}"
    return found


def describe_run(path: str) -> dict[str, Any] | None:
    """Returns a description like `run_folder.read_run`'s of the run that saved a checkpoint.

    It also has "is_tensorflow_1". None if the file is not such a checkpoint.
    """
    try:
        shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError):
        return None
    if not {_FIRST, _LOGITS, _AUXILIARY} <= shapes.keys():
        return None
    # The auxiliary head's last window covers the remaining pixels: 5 of 299.
    image_size = 48 * shapes[_AUXILIARY][0] + 59
    return {
        "is_tensorflow_1": True,
        "identity": {
            "net": NET,
            "image_size": image_size,
            "dataset_name": "imagenet",
            "optimizer": "rmsprop",
            "num_nodes": 1,
        },
        "max_steps": _step(path, shapes),
        "model": {
            "net": NET,
            "num_classes": shapes[_LOGITS][1],
            "image_size": image_size,
            "channels": shapes[_FIRST][2],
        },
    }


def is_meant(run: Mapping[str, Any]) -> bool:
    """Returns True if a description is from `describe_run`."""
    return run.get("is_tensorflow_1", False)


def _step(path, shapes):
    """Returns the number of steps from the file's name, else from its counter."""
    number = re.search(r"-(\d+)$", path)
    if number:
        return int(number[1])
    if "global_step" in shapes:
        with checkpoints.reading(path):
            return int(tf.train.load_checkpoint(path).get_tensor("global_step"))
    return 0


def load(path: str, run: dict[str, Any], *, averages: bool) -> keras.Model:
    """Builds a checkpoint's network with its weights, or moving averages (batch norm's, too)."""
    model = networks.build_described(run)
    suffix = _AVERAGE if averages else ""
    _assign(path, [(variable, name + suffix) for variable, name in _named(model)])
    return model


def restore_all(path: str, model: keras.Model, average: StatisticsAverage) -> None:
    """Restores a compiled network's weights, moving averages, RMSProp state and step."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    named = _named(model)
    name_of = {variable.path: name for variable, name in named}
    names = [name_of[variable.path] for variable in model.trainable_variables]
    # The last variables: averages, mean squares, accumulated steps.
    kept = [name + suffix for suffix in (_AVERAGE, *_SLOTS) for name in names]
    of_weights = zip(optimizer.variables[-len(kept) :], kept, strict=True)
    of_statistics = (
        (variable, name_of[statistic.path] + _AVERAGE)
        for variable, statistic in zip(average.variables, average.statistics, strict=True)
    )
    _assign(path, [*named, *of_weights, *of_statistics])
    optimizer.iterations.assign(describe_run(path)["max_steps"])


def _named(model):
    """Returns [(variable, its name in a checkpoint)]."""
    layers = scopes()
    return [
        (variable, f"{layers[layer.name.removesuffix('_bn')]}/{_VARIABLES[variable.name]}")
        for layer in model.layers
        for variable in layer.weights
    ]


def _assign(path, names):
    """Assigns values to [(variable, name)], after checking that all exist."""
    with checkpoints.reading(path):
        reader = tf.train.load_checkpoint(path)
        shapes = reader.get_variable_to_shape_map()
        for variable, name in names:
            found = tuple(shapes[name]) if name in shapes else "nothing"
            if found != tuple(variable.shape):
                raise UserError(
                    f"the checkpoint of {NET} must hold {name} of the shape "
                    f"{tuple(variable.shape)}. Received: {found} in {path!r}"
                )
        for variable, name in names:
            variable.assign(reader.get_tensor(name))

"""The network of a run, and its description."""

from collections.abc import Mapping
from typing import Any

import keras

from terngrad_tf import models
from terngrad_tf.training.configs.run_config import RunConfig
from terngrad_tf.training.input.data import DatasetShard


def build_network(config: RunConfig, shard: DatasetShard) -> keras.Model:
    """Builds the network of a run; `config` has an image_size."""
    model = config.model
    policy = keras.config.dtype_policy()
    if model.mixed_precision:
        keras.config.set_dtype_policy("mixed_float16")
    try:
        return models.build(
            model.net,  # pyright: ignore[reportArgumentType] (known here)
            shard.num_classes,
            model.image_size,
            shard.channels,
            weight_decay=model.weight_decay,
            dropout_keep_prob=model.dropout_keep_prob,
            seed=config.seed,
        )
    finally:
        keras.config.set_dtype_policy(policy)


def build_described(run: Mapping[str, Any]) -> keras.Model:
    """Builds the network that a run's description names, without weight decay and dropout."""
    network = run["model"]
    return models.build(
        network["net"], network["num_classes"], network["image_size"], network["channels"]
    )


def network_metadata(config: RunConfig, shard: DatasetShard) -> dict[str, Any]:
    """Returns a network's description for `run_folder`."""
    return {
        "net": config.model.net,
        "num_classes": shard.num_classes,
        "image_size": config.model.image_size,
        "channels": shard.channels,
    }


def random_variables(model: keras.Model) -> list[keras.Variable]:
    """Returns the variables that count random draws, such as dropout's.

    Keras' checkpoints omit them; a resumed run needs them.
    """
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def random_states(model: keras.Model) -> list[Any]:
    """Returns the values of `random_variables` for checkpoints."""
    return [variable.value for variable in random_variables(model)]

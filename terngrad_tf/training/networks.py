"""The network of a run, and what describes it."""

from typing import Any

import keras

from terngrad_tf import models
from terngrad_tf.training.data import DatasetShard
from terngrad_tf.training.run_config import RunConfig


def build_network(config: RunConfig, shard: DatasetShard) -> keras.Model:
    """The network of a run.

    Args:
        config: `RunConfig`, image_size given.
        shard: `data.DatasetShard`.

    Raises:
        ValueError: an option is out of range.
    """
    model = config.model
    policy = keras.config.dtype_policy()
    if model.mixed_precision:
        keras.config.set_dtype_policy("mixed_float16")
    try:
        return models.build(
            model.net,  # pyright: ignore[reportArgumentType] (known by now)
            shard.num_classes,
            model.image_size,
            shard.channels,
            weight_decay=model.weight_decay,
            dropout_keep_prob=model.dropout_keep_prob,
            seed=config.seed,
        )
    finally:
        keras.config.set_dtype_policy(policy)


def network_metadata(config: RunConfig, shard: DatasetShard) -> dict[str, Any]:
    """What `run_folder` keeps of a network, for evaluation; arguments as for `build_network`."""
    return {
        "net": config.model.net,
        "num_classes": shard.num_classes,
        "image_size": config.model.image_size,
        "channels": shard.channels,
    }


def random_variables(model: keras.Model) -> list[keras.Variable]:
    """The `keras.Variable`s that count random draws, those of dropout.

    Keras' own checkpoints leave them out, but a resumed run goes on with the next draw.
    """
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def random_states(model: keras.Model) -> list[Any]:
    """The values of `random_variables`, as checkpoints hold them."""
    return [variable.value for variable in random_variables(model)]

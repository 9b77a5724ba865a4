"""Builds the optimizers that a checkpoint's model had built."""

from collections.abc import Mapping

import keras
import numpy as np

from terngrad_tf.checkpoints import held, keys
from terngrad_tf.checkpoints.comparison import check_same, kind_of
from terngrad_tf.checkpoints.files import Description


def build_optimizers(
    model: keras.Model, description: Description, arrays: Mapping[str, np.ndarray]
) -> None:
    """Builds the optimizers of a model that a checkpoint's model had built, for the same weights.

    Raises:
        ValueError: the checkpoint is of another model, or the model's layers are not built, or an
            optimizer is not whose weights the model does not hold.
    """
    weights = keys.weights(model)
    own = {key: saved for key, saved in weights.items() if kind_of(key) == keys.MODEL}
    try:
        check_same(own, description, arrays, (keys.MODEL,), "model")
    except ValueError:
        names = held.layers_not_built(model)
        has_fewer = len(own) < sum(kind_of(key) == keys.MODEL for key in description.paths)
        if not names or not has_fewer:
            raise
        raise ValueError(
            "`Checkpoint` must know the model's weights to restore them: build the model before"
            " `fit`, and each layer that it trains, by an `Input`, or by a call. Received:"
            f" {names[0]}, not built"
        ) from None
    optimizers, trained = held.optimizers_of(model), description.trained
    if trained is None:  # an older file
        main = [key for key, v in own.items() if v.variable.trainable]
        trained = [main] if keys.OPTIMIZER in optimizers else []
    for (place, optimizer), of_one in zip(optimizers.items(), trained, strict=False):
        if optimizer.built or of_one is None:
            continue
        if not all(key in weights for key in of_one):
            raise ValueError(
                f"`{place}` must be built before `fit`, for it trains weights that are not in the"
                " model. Received: not built"
            )
        with model.distribute_strategy.scope():
            optimizer.build([weights[key].variable for key in of_one if key is not None])
